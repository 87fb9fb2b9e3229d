"""Public data sets, one row each: where a set comes from, how its files lie, which images are to train and to test.

A row is found by its name, as a file in bench/data/sets/ is. Published splits are used as they are; "train" holds the
published validation part too, as VTAB's tasks do (Zhai et al., 2019, arXiv:1910.04867), whose nineteen are all here.
Where none is published, a hash of the file's name divides.
"""

from __future__ import annotations

import string
from functools import partial

from bench.data import readers, vtab
from bench.data.fetch import File, idx_files
from bench.data.rows import ArrayFiles, ImageFiles, OwnCopy, PublicSet, Tiles

RESEARCH = "none stated; for research"
CIFAR = "https://www.cs.toronto.edu/~kriz/cifar.html"
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100 = {  # superclasses, each of five classes
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
_coarse = {name: number for number, names in enumerate(CIFAR100.values()) for name in names.split()}
_merged = tuple(string.digits + string.ascii_uppercase + "abdefghnqrt")  # letters whose cases look alike are one class
EMNIST = {
    "balanced": _merged,
    "letters": tuple(string.ascii_lowercase),
    "digits": tuple(string.digits),
    "mnist": tuple(string.digits),
    "bymerge": _merged,
    "byclass": tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase),
}
KMNIST = ("お o", "き ki", "す su", "つ tsu", "な na", "は ha", "ま ma", "や ya", "れ re", "を wo")
DSPRITES = "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
VGG, SKIMAGE = (
    "https://www.robots.ox.ac.uk/~vgg/data",
    (
        "Install the package scikit-image, or put its folder skimage/data into <data root>/scikit-image. "
        "It is part of the extra `data`."
    ),
)


def below(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


OWN = (
    ImageFiles(  # Maji et al., 2013, arXiv:1306.5151
        NAME="aircraft",
        DESCRIPTION="photographs of aircraft",
        images=(6_667, 3_333),
        classes=100,
        LICENCE="for non-commercial research",
        SOURCE=f"{VGG}/fgvc-aircraft (Visual Geometry Group, Oxford)",
        HOW_TO_GET=f"Unpack fgvc-aircraft-2013b.tar.gz from {VGG}/fgvc-aircraft into <data root>/.",
        needs=("fgvc-aircraft-2013b/data/images",),
        listed=partial(readers.torchvision, kind="FGVCAircraft", train=("trainval",)),
    ),
    ImageFiles(  # Fei-Fei et al., 2004: 30 images of every class for training. VTAB counts the clutter as a class
        NAME="caltech101",
        SPLIT="30 images of every class are for training, by a hash of file names",
        DESCRIPTION="photographs of things",
        images=(3_060, 6_084),
        classes=102,
        LICENCE="CC-BY-4.0",
        SOURCE="https://data.caltech.edu/records/mzrjq-6wc02 (California Institute of Technology)",
        HOW_TO_GET="Unpack caltech-101.zip from https://data.caltech.edu/records/mzrjq-6wc02 and the "
        "101_ObjectCategories.tar.gz in it into <data root>/caltech101/ (so that "
        "<data root>/caltech101/101_ObjectCategories is there).",
        needs=("caltech101/101_ObjectCategories",),
        listed=partial(readers.class_folders, folder="caltech101/101_ObjectCategories", train=30),
    ),
    ImageFiles(  # Krause et al., 2013
        NAME="cars",
        DESCRIPTION="photographs of cars",
        images=(8_144, 8_041),
        classes=196,
        LICENCE=RESEARCH,
        SOURCE="https://ai.stanford.edu/~jkrause/cars/car_dataset.html (Stanford University; no longer served there)",
        HOW_TO_GET="Put cars_train/, cars_test/, devkit/ and cars_test_annos_withlabels.mat into "
        "<data root>/stanford_cars/.",
        needs=below("stanford_cars", "cars_train", "cars_test", "devkit", "cars_test_annos_withlabels.mat"),
        listed=partial(readers.torchvision, kind="StanfordCars"),
    ),
    ArrayFiles(  # Krizhevsky, 2009
        NAME="cifar10",
        DESCRIPTION="32 px colour photographs",
        images=(50_000, 10_000),
        names={"": CIFAR10},
        LICENCE="none stated; free for research with a citation of Krizhevsky (2009)",
        SOURCE=CIFAR,
        HOW_TO_GET=f"Unpack cifar-10-binary.tar.gz (or cifar-10-python.tar.gz) from {CIFAR} into <data root>/.",
        places=partial(readers.cifar_places, kind="CIFAR10"),
        read=partial(readers.cifar, kind="CIFAR10"),
        source=readers.cifar_version,
    ),
    ArrayFiles(
        NAME="cifar100",
        DESCRIPTION="32 px colour photographs",
        images=(50_000, 10_000),
        names={"fine": sorted(_coarse), "coarse": tuple(CIFAR100)},
        option="labelling of CIFAR-100",
        OPTIONS="cifar100:fine (default, 100 classes) or cifar100:coarse (20 superclasses)",
        LICENCE="none stated; free for research with a citation of Krizhevsky (2009)",
        SOURCE=CIFAR,
        HOW_TO_GET=f"Unpack cifar-100-binary.tar.gz (or cifar-100-python.tar.gz) from {CIFAR} into <data root>/.",
        places=partial(readers.cifar_places, kind="CIFAR100"),
        read=partial(readers.cifar, kind="CIFAR100", coarse=[_coarse[name] for name in sorted(_coarse)]),
        source=readers.cifar_version,
    ),
    *(
        ImageFiles(  # Johnson et al., 2017, arXiv:1612.06890
            NAME=f"clevr-{task}",
            SPLIT="the published validation part is for testing",
            KIND="rendered",
            DESCRIPTION=f"drawn scenes by {what}",
            images=(70_000, 15_000),
            classes=len(readers.CLEVR[task][1]),
            LICENCE="CC-BY-4.0",
            SOURCE="https://cs.stanford.edu/people/jcjohns/clevr (Stanford University and Facebook AI Research)",
            HOW_TO_GET="Unpack CLEVR_v1.0.zip from https://cs.stanford.edu/people/jcjohns/clevr into "
            "<data root>/clevr/.",
            DOWNLOADS=(
                File(
                    url="https://dl.fbaipublicfiles.com/clevr/CLEVR_v1.0.zip",
                    size=19_000_000_000,
                    checksum="md5:b11922020e72d0cd9154779b2d3d07d2",
                    folder="clevr",
                    makes=("CLEVR_v1.0",),
                ),
            ),
            needs=below("clevr/CLEVR_v1.0/scenes", "CLEVR_train_scenes.json", "CLEVR_val_scenes.json"),
            listed=partial(readers.clevr, task=task),
        )
        for task, what in (("count", "their number of things"), ("distance", "the distance of the nearest thing"))
    ),
    ImageFiles(
        NAME="dmlab",
        KIND="rendered",
        DESCRIPTION="rendered views of mazes",
        images=(88_178, 22_735),
        classes=6,
        LICENCE="Apache-2.0",
        SOURCE="https://github.com/google-research/task_adaptation (Google)",
        HOW_TO_GET="Unpack dmlab.tar.gz of https://github.com/google-research/task_adaptation (the archive that "
        "TensorFlow Datasets gets for `dmlab`) into <data root>/dmlab/: dmlab-train.tfrecord, "
        "dmlab-validation.tfrecord, dmlab-test.tfrecord.",
        needs=below("dmlab", "dmlab-train.tfrecord", "dmlab-validation.tfrecord", "dmlab-test.tfrecord"),
        listed=readers.dmlab,
    ),
    *(
        ArrayFiles(  # Matthey et al., 2017
            NAME=f"dsprites-{task}",
            SPLIT="a tenth is for testing, in a fixed random order",
            KIND="rendered",
            DESCRIPTION=f"64 px drawn shapes by their {task}",
            images=(663_552, 73_728),
            names={"": tuple(map(str, range(readers.DSPRITES_BINS)))},
            LICENCE="Apache-2.0",
            SOURCE="https://github.com/google-deepmind/dsprites-dataset (DeepMind)",
            source="published file",
            HOW_TO_GET=f"Put {DSPRITES} from https://github.com/google-deepmind/dsprites-dataset into "
            "<data root>/dsprites/.",
            places=lambda split, option: [[f"dsprites/{DSPRITES}"]],
            read=partial(readers.dsprites, column=column, values=values),
        )
        for task, column, values in (("location", 4, 32), ("orientation", 3, 40))
    ),
    ImageFiles(  # Cimpoi et al., 2014, arXiv:1311.3618; the first of its ten partitions
        NAME="dtd",
        DESCRIPTION="photographs of textures",
        images=(3_760, 1_880),
        classes=47,
        LICENCE=RESEARCH,
        SOURCE=f"{VGG}/dtd (Visual Geometry Group, Oxford)",
        HOW_TO_GET=f"Unpack dtd-r1.0.1.tar.gz from {VGG}/dtd into <data root>/dtd/ (so that "
        "<data root>/dtd/dtd/images is there).",
        needs=below("dtd/dtd", "images", "labels"),
        listed=partial(readers.torchvision, kind="DTD", train=("train", "val")),
    ),
    ArrayFiles(  # Cohen et al., 2017, arXiv:1702.05373
        NAME="emnist",
        KIND="handwriting",
        names=EMNIST,
        option="split of EMNIST",
        images=(112_800, 18_800),
        DESCRIPTION="28 px scanned handwritten letters and digits, 10 to 62 classes",
        OPTIONS=f"emnist:SPLIT with SPLIT one of balanced (default), {', '.join(list(EMNIST)[1:])}",
        LICENCE="public domain (NIST Special Database 19)",
        SOURCE="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        source="IDX files",
        HOW_TO_GET="Put the IDX files (emnist-letters-train-images-idx3-ubyte.gz, …, from "
        "https://www.nist.gov/itl/products-and-services/emnist-dataset) into <data root>/emnist/.",
        DOWNLOADS=(
            File(
                url="https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
                size=561_753_746,
                checksum="md5:58c8d27c78d21e728a6bc7b3cc06412e",
                folder="emnist",
                makes=("gzip",),
            ),
        ),
        places=partial(
            readers.idx_places, folders=("emnist", "emnist/gzip", "EMNIST/raw"), prefix="emnist-{}-", test="test"
        ),
        read=partial(readers.idx, names=EMNIST, transposed=True),
    ),
    ImageFiles(  # Helber et al., 2019, arXiv:1709.00029
        NAME="eurosat",
        SPLIT="a fifth of every class is for testing, by a hash of file names",
        DESCRIPTION="64 px satellite pictures",
        images=(21_600, 5_400),
        classes=10,
        SIDE=64,
        LICENCE="MIT",
        SOURCE="https://github.com/phelber/EuroSAT (German Research Center for Artificial Intelligence)",
        HOW_TO_GET="Unpack EuroSAT.zip (the RGB version, https://github.com/phelber/EuroSAT) into "
        "<data root>/eurosat/ (it makes the folder 2750).",
        DOWNLOADS=(
            File(
                url="https://huggingface.co/datasets/torchgeo/eurosat/resolve/c877bcd43f099cd0196738f714544e355477f3fd"
                "/EuroSAT.zip",
                size=94_000_000,
                checksum="md5:c8fa014336c82ac7804f0398fcb19387",
                folder="eurosat",
                makes=("2750",),
            ),
        ),
        needs=("eurosat/2750",),
        listed=partial(readers.torchvision, kind="EuroSAT", train=(None,), test=(None,)),
    ),
    ImageFiles(  # Nilsback and Zisserman, 2008
        NAME="flowers102",
        DESCRIPTION="photographs of flowers",
        images=(2_040, 6_149),
        classes=102,
        LICENCE=RESEARCH,
        SOURCE=f"{VGG}/flowers/102 (Visual Geometry Group, Oxford)",
        HOW_TO_GET=f"Get 102flowers.tgz, imagelabels.mat and setid.mat from {VGG}/flowers/102, put them into "
        "<data root>/flowers-102/ and unpack the first there (it makes the folder jpg).",
        needs=below("flowers-102", "jpg", "imagelabels.mat", "setid.mat"),
        listed=partial(readers.torchvision, kind="Flowers102", train=("train", "val")),
    ),
    ImageFiles(  # Bossard et al., 2014
        NAME="food101",
        DESCRIPTION="photographs of dishes",
        images=(75_750, 25_250),
        classes=101,
        LICENCE=RESEARCH,
        SOURCE="https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101 (ETH Zurich)",
        HOW_TO_GET="Unpack food-101.tar.gz from https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101 into "
        "<data root>/.",
        needs=below("food-101", "images", "meta"),
        listed=partial(readers.torchvision, kind="Food101"),
    ),
    OwnCopy(  # Russakovsky et al., 2015. Streamed. `real.json` beside its folders adds the ReaL labels
        NAME="imagenet",
        REVISION=2,  # streamed, not stored
        SPLIT="train and val as your folder has them, else a tenth of every class is for testing",
        DESCRIPTION="1.28 million photographs, 1,000 classes, 224 px; not in any package",
        images=(1_281_167, 50_000),
        classes=1_000,
        OPTIONS="imagenet:384px stores the central square at that size",
        LICENCE="non-commercial research only; the images belong to their owners",
        SOURCE="https://www.image-net.org (Russakovsky et al., 2015)",
        HOW_TO_GET="Ask for it at https://www.image-net.org, and put its folders train/ and val/ (or tar shards, or "
        "Parquet) into <data root>/imagenet.",
    ),
    OwnCopy(  # Deng et al., 2009; the paper's second largest upstream set. Streamed
        NAME="imagenet-21k",
        REVISION=2,  # streamed, not stored
        SPLIT="train and val as your folder has them, else a tenth of every class is for testing",
        DESCRIPTION="14 million photographs, 21,843 classes, 224 px; not in any package",
        images=(14_094_722, 102_400),
        classes=21_843,
        LICENCE="non-commercial research only; the images belong to their owners",
        SOURCE="https://www.image-net.org (Deng et al., 2009)",
        HOW_TO_GET="Ask for it at https://www.image-net.org, and put a folder per class (or tar shards, or Parquet) "
        "into <data root>/imagenet-21k.",
    ),
    PublicSet(  # the paper's largest upstream set: its size is needed for the cost of the paper's grid
        NAME="jft-300m",
        DESCRIPTION="303 million photographs, 18,291 classes; not public, for costing only",
        images=(303_000_000, 49_511),
        classes=18_291,
        vast=True,
        LICENCE="not public",
        SOURCE="Sun et al. 2017, arXiv:1707.02968; as used in arXiv:2010.11929",
        HOW_TO_GET="It cannot be had outside Google. Use --data with a set of your own.",
    ),
    ImageFiles(  # Geiger et al., 2012
        NAME="kitti-distance",
        SPLIT="a tenth of the drives is for testing, by a hash of their names",
        DESCRIPTION="photographs of roads by the distance of the nearest vehicle",
        images=(6_733, 748),
        classes=4,
        LICENCE="CC-BY-NC-SA-3.0",
        SOURCE="https://www.cvlibs.net/datasets/kitti (Karlsruhe Institute of Technology and Toyota)",
        HOW_TO_GET="Unpack data_object_image_2.zip and data_object_label_2.zip from "
        "https://www.cvlibs.net/datasets/kitti/eval_object.php into <data root>/Kitti/raw/, and put mapping/ of "
        "devkit_object.zip there too.",
        needs=below(
            "Kitti/raw", "training/image_2", "training/label_2", "mapping/train_mapping.txt", "mapping/train_rand.txt"
        ),
        listed=readers.kitti_distance,
    ),
    ArrayFiles(  # Clanuwat et al., 2018, arXiv:1812.01718
        NAME="kmnist",
        KIND="handwriting",
        DESCRIPTION="28 px scanned cursive Japanese characters",
        images=(60_000, 10_000),
        names={"": KMNIST},
        LICENCE="CC-BY-SA-4.0",
        SOURCE="https://github.com/rois-codh/kmnist (ROIS-CODH)",
        source="IDX files",
        HOW_TO_GET="Put the four IDX files of Kuzushiji-MNIST (train-images-idx3-ubyte.gz, …, from "
        "https://github.com/rois-codh/kmnist) into <data root>/kmnist/.",
        DOWNLOADS=idx_files(
            "http://codh.rois.ac.jp/kmnist/dataset/kmnist",
            "kmnist",
            "bdb82020997e1d708af4cf47b453dcf7",
            "e144d726b3acfaa3e44228e80efcd344",
            "5c965bf0a639b31b8f53240b1b52f4d7",
            "7320c461ea6c1c855c0b718fb2a4b134",
        ),
        places=partial(readers.idx_places, folders=("kmnist", "KMNIST/raw")),
        read=partial(readers.idx, names={"": KMNIST}),
    ),
    ImageFiles(  # Veeling et al., 2018, arXiv:1806.03962: is there a tumour in the middle? VTAB's `Camelyon`
        NAME="patch-camelyon",
        DESCRIPTION="96 px microscope pictures of tissue",
        images=(294_912, 32_768),
        classes=2,
        SIDE=96,
        LICENCE="CC0-1.0",
        SOURCE="https://github.com/basveeling/pcam (Bas Veeling; from Camelyon16)",
        HOW_TO_GET="Put the six files camelyonpatch_level_2_split_{train,valid,test}_{x,y}.h5, unpacked from the links "
        "at https://github.com/basveeling/pcam, into <data root>/pcam/; reading them needs the package h5py.",
        needs=tuple(
            f"pcam/camelyonpatch_level_2_split_{part}_{what}.h5" for part in ("train", "valid", "test") for what in "xy"
        ),
        listed=readers.patch_camelyon,
    ),
    ImageFiles(  # Parkhi et al., 2012
        NAME="pets",
        DESCRIPTION="photographs of cats and dogs",
        images=(3_680, 3_669),
        classes=37,
        LICENCE="CC-BY-SA-4.0",
        SOURCE=f"{VGG}/pets (Visual Geometry Group, Oxford)",
        HOW_TO_GET=f"Unpack images.tar.gz and annotations.tar.gz from {VGG}/pets into <data root>/oxford-iiit-pet/.",
        DOWNLOADS=(
            File(
                url=f"{VGG}/pets/data/images.tar.gz",
                checksum="md5:5c4f3ee8e5d25df40f4fd59a7f44e54c",
                size=791_918_971,
                folder="oxford-iiit-pet",
                makes=("images",),
            ),
            File(
                url=f"{VGG}/pets/data/annotations.tar.gz",
                checksum="md5:95a8c909bbe2e81eed6a22bccdf3f68f",
                size=19_173_078,
                folder="oxford-iiit-pet",
                makes=("annotations",),
            ),
        ),
        needs=below("oxford-iiit-pet", "images", "annotations"),
        listed=partial(readers.torchvision, kind="OxfordIIITPet", train=("trainval",)),
    ),
    Tiles(
        NAME="photo-tiles",
        DESCRIPTION="28 px grey tiles of nine photographs, 9 classes",
        images=(1_528, 744),
        classes=9,
        OPTIONS="name:56px cuts tiles of 56 px, or of any size from 8 to 128 px",
        LICENCE="CC0 or public domain, as listed in skimage/data/_fetchers.py; coins: no known restrictions",
        SOURCE="https://scikit-image.org, skimage.data",
        HOW_TO_GET=SKIMAGE,
        files={
            "astronaut": "astronaut.png",
            "brick": "brick.png",
            "camera man": "camera.png",
            "cat": "chelsea.png",
            "coffee": "coffee.png",
            "coins": "coins.png",
            "grass": "grass.png",
            "gravel": "gravel.png",
            "rocket": "rocket.jpg",
        },
    ),
    ImageFiles(  # Cheng et al., 2017, arXiv:1703.00121
        NAME="resisc45",
        SPLIT="a fifth of every class is for testing, by a hash of file names",
        DESCRIPTION="256 px aerial pictures",
        images=(25_200, 6_300),
        classes=45,
        LICENCE=RESEARCH,
        SOURCE="https://gcheng-nwpu.github.io (Northwestern Polytechnical University)",
        HOW_TO_GET="Unpack NWPU-RESISC45.rar (linked at https://gcheng-nwpu.github.io) into <data root>/resisc45/ (so "
        "that <data root>/resisc45/NWPU-RESISC45/airplane is there).",
        needs=("resisc45/NWPU-RESISC45",),
        listed=partial(readers.class_folders, folder="resisc45/NWPU-RESISC45"),
    ),
    ImageFiles(  # EyePACS, 2015. VTAB's pictures were cropped and normalised at radius 300 ("btgraham-300"): use those
        NAME="retinopathy",
        DESCRIPTION="photographs of retinas",
        images=(46_032, 42_670),
        classes=5,
        LICENCE="Kaggle's competition rules",
        SOURCE="https://www.kaggle.com/c/diabetic-retinopathy-detection (EyePACS)",
        HOW_TO_GET="Get train/, test/, trainLabels.csv and retinopathy_solution.csv from "
        "https://www.kaggle.com/c/diabetic-retinopathy-detection into <data root>/retinopathy/.",
        needs=below("retinopathy", "train", "test", "trainLabels.csv", "retinopathy_solution.csv"),
        listed=readers.retinopathy,
    ),
    *(
        ArrayFiles(  # LeCun et al., 2004
            NAME=f"smallnorb-{task}",
            DESCRIPTION=f"96 px grey photographs of toys by their {task}",
            images=(24_300, 12_150),
            names={"": tuple(f"{degree}°" for degree in degrees)},
            LICENCE="for research",
            SOURCE="https://cs.nyu.edu/~ylclab/data/norb-v1.0-small (New York University)",
            HOW_TO_GET=f"Put {readers.NORB['train']}-dat.mat.gz, -info.mat.gz and {readers.NORB['test']}-dat.mat.gz, "
            "-info.mat.gz from https://cs.nyu.edu/~ylclab/data/norb-v1.0-small into <data root>/smallnorb/.",
            places=readers.norb_places,
            read=partial(readers.norb, column=column, step=step),
        )
        for task, column, step, degrees in (
            ("azimuth", 2, 2, range(0, 360, 20)),  # stored are even numbers, tens of degrees
            ("elevation", 1, 1, range(30, 75, 5)),
        )
    ),
    Tiles(  # one picture of each: kinds of pictures, not patients; level: otherwise brightness gives the answer
        NAME="specimen-tiles",
        level=True,
        images=(2_674, 1_134),
        classes=5,
        DESCRIPTION="28 px grey tiles of medical, microscopic and astronomical pictures, 5 classes",
        OPTIONS="name:56px cuts tiles of 56 px, or of any size from 8 to 128 px",
        LICENCE="CC0 or public domain, as listed in skimage/data/_fetchers.py; tissue: no known restrictions",
        SOURCE="https://scikit-image.org, skimage.data",
        HOW_TO_GET=SKIMAGE,
        files={
            "cells": "cell.png",
            "galaxies": "hubble_deep_field.jpg",
            "tissue": "ihc.png",
            "moon": "moon.png",
            "retina": "retina.jpg",
        },
    ),
    ImageFiles(  # Coates et al., 2011
        NAME="stl10",
        DESCRIPTION="96 px colour photographs",
        images=(5_000, 8_000),
        classes=10,
        SIDE=96,
        LICENCE="none stated; images from ImageNet",
        SOURCE="https://cs.stanford.edu/~acoates/stl10 (Stanford University)",
        HOW_TO_GET="Unpack stl10_binary.tar.gz from https://cs.stanford.edu/~acoates/stl10 into <data root>/.",
        needs=below("stl10_binary", "train_X.bin", "test_X.bin"),
        listed=readers.stl10,
    ),
    ImageFiles(  # Xiao et al., 2010; VTAB's split is a list that only TensorFlow Datasets ships: its proportions
        NAME="sun397",
        SPLIT="a fifth of every class is for testing, by a hash of file names",
        DESCRIPTION="photographs of scenes",
        images=(87_003, 21_751),
        classes=397,
        LICENCE=RESEARCH,
        SOURCE="https://vision.princeton.edu/projects/2010/SUN (Princeton University)",
        HOW_TO_GET="Unpack SUN397.tar.gz from https://vision.princeton.edu/projects/2010/SUN into <data root>/.",
        needs=("SUN397/ClassName.txt",),
        listed=partial(readers.torchvision, kind="SUN397", train=(None,), test=(None,)),
    ),
    ArrayFiles(  # Netzer et al., 2011; cropped digits
        NAME="svhn",
        DESCRIPTION="32 px colour photographs of house numbers",
        images=(73_257, 26_032),
        names={"": tuple(string.digits)},
        LICENCE="for non-commercial use",
        source="MATLAB files",
        SOURCE="http://ufldl.stanford.edu/housenumbers (Stanford University)",
        HOW_TO_GET="Put train_32x32.mat and test_32x32.mat from http://ufldl.stanford.edu/housenumbers into "
        "<data root>/svhn/.",
        places=lambda split, option: [[f"{folder}/{split}_32x32.mat"] for folder in ("svhn", "SVHN")],
        read=readers.svhn,
    ),
)

TABLE = (*OWN, *vtab.rows({row.NAME: row for row in OWN}))
ROWS = {row.NAME: row for row in TABLE}
SIZES = {row.NAME: (*row.images, row.classes) for row in TABLE if row.images and row.classes}
