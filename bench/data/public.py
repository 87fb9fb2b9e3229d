"""The table of published data sets: where each comes from, which class of torchvision reads it, how it is split.

A row is found by its name, like a file in bench/data/sets/. Published splits are used as they are; "train" includes the
published validation part, as in VTAB's tasks (Zhai et al., 2019, arXiv:1910.04867), whose nineteen sets are all here.
If no split is published, images are divided by a hash of the file's name. Sets that torchvision does not read come from
the Hugging Face hub (`bench.data.vtab`).
"""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from bench.data import vtab
from bench.data.data_set import DataSet
from bench.data.folder_sets import FolderSet, no_images
from bench.data.torchvision_sets import TorchvisionSet, by_flag, by_word, undivided

RESEARCH = "none stated; for research"
VALIDATION = "as published; the validation part is for training"
BY_HASH = "a fifth of every class is for testing, by a hash of file names"
VGG = "https://www.robots.ox.ac.uk/~vgg/data"
CIFAR = "https://www.cs.toronto.edu/~kriz/cifar.html"
CIFAR100 = {  # superclass -> its five classes
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
_superclass = {name: number for number, names in enumerate(CIFAR100.values()) for name in names.split()}
SUPERCLASS_OF = np.array([_superclass[name] for name in sorted(_superclass)])  # label of a class -> superclass
NOT_PUBLIC = "It cannot be had outside Google. Use --data with a set of your own."
KMNIST = ("お o", "き ki", "す su", "つ tsu", "な na", "は ha", "ま ma", "や ya", "れ re", "を wo")
IDX = tuple(f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))


def below(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


OWN: tuple[DataSet, ...] = (
    TorchvisionSet(  # Maji et al., 2013, arXiv:1306.5151
        name="aircraft",
        of="FGVCAircraft",
        parts=by_word(train=("trainval",)),
        needs=("fgvc-aircraft-2013b/data/images",),
        kind="photographs",
        description="photographs of aircraft",
        images=(6_667, 3_333),
        classes=100,
        side=224,
        split=VALIDATION,
        licence="for non-commercial research",
        source=f"{VGG}/fgvc-aircraft (Visual Geometry Group, Oxford)",
        how_to_get=f"Or unpack fgvc-aircraft-2013b.tar.gz from {VGG}/fgvc-aircraft into <data root>/.",
        archive_bytes=2_750_000_000,
    ),
    TorchvisionSet(  # Fei-Fei et al., 2004: 30 images of every class for training. VTAB counts the clutter as a class
        name="caltech101",
        of="ImageFolder",
        base="caltech101/101_ObjectCategories",
        parts=undivided,
        fetched_by="Caltech101",
        needs=("caltech101/101_ObjectCategories",),
        train_per_class=30,
        kind="photographs",
        description="photographs of things",
        images=(3_060, 6_084),
        classes=102,
        side=224,
        split="30 images of every class are for training, by a hash of file names",
        licence="CC-BY-4.0",
        source="https://data.caltech.edu/records/mzrjq-6wc02 (California Institute of Technology)",
        how_to_get="Or unpack caltech-101.zip from https://data.caltech.edu/records/mzrjq-6wc02 and the "
        "101_ObjectCategories.tar.gz in it into <data root>/caltech101/ (so that "
        "<data root>/caltech101/101_ObjectCategories is there).",
        archive_bytes=140_000_000,
    ),
    TorchvisionSet(  # Krause et al., 2013
        name="cars",
        of="StanfordCars",
        parts=by_word(),
        fetched_by="",
        needs=below("stanford_cars", "cars_train", "cars_test", "devkit", "cars_test_annos_withlabels.mat"),
        kind="photographs",
        description="photographs of cars",
        images=(8_144, 8_041),
        classes=196,
        side=224,
        split="as published",
        licence=RESEARCH,
        source="https://ai.stanford.edu/~jkrause/cars/car_dataset.html (Stanford University; no longer served there)",
        how_to_get="Put cars_train/, cars_test/, devkit/ and cars_test_annos_withlabels.mat into "
        "<data root>/stanford_cars/.",
    ),
    TorchvisionSet(  # Krizhevsky, 2009
        name="cifar10",
        of="CIFAR10",
        parts=by_flag,
        is_pixels=True,
        needs=below("cifar-10-batches-py", *(f"data_batch_{number}" for number in range(1, 6)), "test_batch"),
        kind="photographs",
        description="32 px colour photographs",
        images=(50_000, 10_000),
        classes=10,
        split="as published",
        licence="none stated; free for research with a citation of Krizhevsky (2009)",
        source=CIFAR,
        how_to_get=f"Or unpack cifar-10-python.tar.gz from {CIFAR} into <data root>/.",
        archive_bytes=170_498_071,
    ),
    TorchvisionSet(
        name="cifar100",
        of="CIFAR100",
        parts=by_flag,
        is_pixels=True,
        needs=below("cifar-100-python", "train", "test"),
        choices=("fine", "coarse"),
        class_names={"coarse": tuple(CIFAR100)},
        relabel=lambda labels_N, choice: SUPERCLASS_OF[labels_N] if choice == "coarse" else labels_N,
        kind="photographs",
        description="32 px colour photographs, 100 classes (or 20 superclasses), 50,000 + 10,000",
        images=(50_000, 10_000),
        classes=100,
        split="as published",
        licence="none stated; free for research with a citation of Krizhevsky (2009)",
        source=CIFAR,
        how_to_get=f"Or unpack cifar-100-python.tar.gz from {CIFAR} into <data root>/.",
        archive_bytes=169_001_437,
    ),
    TorchvisionSet(  # Johnson et al., 2017, arXiv:1612.06890. VTAB's `count_all`
        name="clevr-count",
        of="CLEVRClassification",
        parts=by_word(test=("val",)),
        needs=below("clevr/CLEVR_v1.0/scenes", "CLEVR_train_scenes.json", "CLEVR_val_scenes.json"),
        class_names={"": tuple(str(count) for count in range(3, 11))},
        relabel=lambda labels_N, choice: labels_N - 3,
        kind="rendered",
        description="drawn scenes by their number of things",
        images=(70_000, 15_000),
        classes=8,
        side=224,
        split="the published validation part is for testing",
        licence="CC-BY-4.0",
        source="https://cs.stanford.edu/people/jcjohns/clevr (Stanford University and Facebook AI Research)",
        how_to_get="Or unpack CLEVR_v1.0.zip from https://cs.stanford.edu/people/jcjohns/clevr into "
        "<data root>/clevr/.",
        archive_bytes=19_000_000_000,
    ),
    TorchvisionSet(  # Cimpoi et al., 2014, arXiv:1311.3618; the first of its ten partitions
        name="dtd",
        of="DTD",
        parts=by_word(train=("train", "val")),
        needs=below("dtd/dtd", "images", "labels"),
        kind="photographs",
        description="photographs of textures",
        images=(3_760, 1_880),
        classes=47,
        side=224,
        split=VALIDATION,
        licence=RESEARCH,
        source=f"{VGG}/dtd (Visual Geometry Group, Oxford)",
        how_to_get=f"Or unpack dtd-r1.0.1.tar.gz from {VGG}/dtd into <data root>/dtd/ (so that "
        "<data root>/dtd/dtd/images is there).",
        archive_bytes=625_000_000,
    ),
    TorchvisionSet(  # Cohen et al., 2017, arXiv:1702.05373
        name="emnist",
        of="EMNIST",
        parts=lambda split, choice: [{"split": choice, "train": split == "train"}],
        is_pixels=True,
        transposed=True,
        needs=tuple(
            f"EMNIST/raw/emnist-{{choice}}-{part}-{what}-ubyte"
            for part in ("train", "test")
            for what in ("images-idx3", "labels-idx1")
        ),
        choices=("balanced", "letters", "digits", "mnist", "bymerge", "byclass"),
        class_names={"letters": tuple(string.ascii_lowercase)},  # torchvision's begin with an unused class
        relabel=lambda labels_N, choice: labels_N - (choice == "letters"),
        kind="handwriting",
        description="28 px scanned handwritten letters and digits, 10 to 62 classes",
        images=(112_800, 18_800),
        classes=47,
        split="as published",
        licence="public domain (NIST Special Database 19)",
        source="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        how_to_get="Or unpack gzip.zip from https://www.nist.gov/itl/products-and-services/emnist-dataset, and the "
        "files in it, into <data root>/EMNIST/raw/ (emnist-letters-train-images-idx3-ubyte, …).",
        archive_bytes=561_753_746,
    ),
    TorchvisionSet(  # Helber et al., 2019, arXiv:1709.00029
        name="eurosat",
        of="EuroSAT",
        parts=undivided,
        needs=("eurosat/2750",),
        kind="photographs",
        description="64 px satellite pictures",
        images=(21_600, 5_400),
        classes=10,
        side=64,
        split=BY_HASH,
        licence="MIT",
        source="https://github.com/phelber/EuroSAT (German Research Center for Artificial Intelligence)",
        how_to_get="Or unpack EuroSAT.zip (the RGB version, https://github.com/phelber/EuroSAT) into "
        "<data root>/eurosat/ (it makes the folder 2750).",
        archive_bytes=94_000_000,
    ),
    TorchvisionSet(  # Nilsback and Zisserman, 2008
        name="flowers102",
        of="Flowers102",
        parts=by_word(train=("train", "val")),
        needs=below("flowers-102", "jpg", "imagelabels.mat", "setid.mat"),
        kind="photographs",
        description="photographs of flowers",
        images=(2_040, 6_149),
        classes=102,
        side=224,
        split=VALIDATION,
        licence=RESEARCH,
        source=f"{VGG}/flowers/102 (Visual Geometry Group, Oxford)",
        how_to_get=f"Or get 102flowers.tgz, imagelabels.mat and setid.mat from {VGG}/flowers/102, put them into "
        "<data root>/flowers-102/ and unpack the first there (it makes the folder jpg).",
        archive_bytes=345_000_000,
    ),
    TorchvisionSet(  # Bossard et al., 2014
        name="food101",
        of="Food101",
        parts=by_word(),
        needs=below("food-101", "images", "meta"),
        kind="photographs",
        description="photographs of dishes",
        images=(75_750, 25_250),
        classes=101,
        side=224,
        split="as published",
        licence=RESEARCH,
        source="https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101 (ETH Zurich)",
        how_to_get="Or unpack food-101.tar.gz from https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101 into "
        "<data root>/.",
        archive_bytes=5_000_000_000,
    ),
    FolderSet(  # Russakovsky et al., 2015. `real.json` beside its folders adds the ReaL labels
        name="imagenet",
        description="1.28 million photographs, 1,000 classes, 224 px; not in any package",
        images=(1_281_167, 50_000),
        classes=1_000,
        options="imagenet:384px stores the central square at that size",
        takes_side=True,
        source="https://www.image-net.org (Russakovsky et al., 2015)",
        how_to_get="Ask for it at https://www.image-net.org, and put its folders train/ and val/ (or tar shards, or "
        "Parquet) into <data root>/imagenet.",
    ),
    FolderSet(  # Deng et al., 2009; the ViT paper's second largest upstream set
        name="imagenet-21k",
        description="14 million photographs, 21,843 classes, 224 px; not in any package",
        images=(14_094_722, 102_400),
        classes=21_843,
        source="https://www.image-net.org (Deng et al., 2009)",
        how_to_get="Ask for it at https://www.image-net.org, and put a folder per class (or tar shards, or Parquet) "
        "into <data root>/imagenet-21k.",
    ),
    DataSet(  # the ViT paper's largest upstream set; its size is needed to predict the cost of that paper's runs
        name="jft-300m",
        kind="photographs",
        description="303 million photographs, 18,291 classes; not public, for costing only",
        images=(303_000_000, 49_511),
        classes=18_291,
        unopened=True,
        licence="not public",
        pinned="not verified: nobody outside Google has a copy",
        source="Sun et al. 2017, arXiv:1707.02968; as used in arXiv:2010.11929",
        how_to_get=NOT_PUBLIC,
        load=no_images("jft-300m", NOT_PUBLIC),
        available=lambda root: False,
    ),
    TorchvisionSet(  # Clanuwat et al., 2018, arXiv:1812.01718
        name="kmnist",
        of="KMNIST",
        parts=by_flag,
        is_pixels=True,
        needs=below("KMNIST/raw", *IDX),
        class_names={"": KMNIST},
        kind="handwriting",
        description="28 px scanned cursive Japanese characters",
        images=(60_000, 10_000),
        classes=10,
        split="as published",
        licence="CC-BY-SA-4.0",
        source="https://github.com/rois-codh/kmnist (ROIS-CODH)",
        how_to_get="Or unpack the four IDX files of Kuzushiji-MNIST (https://github.com/rois-codh/kmnist) into "
        "<data root>/KMNIST/raw/ (train-images-idx3-ubyte, …).",
        archive_bytes=21_000_000,
    ),
    TorchvisionSet(  # Veeling et al., 2018, arXiv:1806.03962: tumour in the middle or not; VTAB's `Camelyon`
        name="patch-camelyon",
        of="PCAM",
        parts=by_word(train=("train", "val")),
        is_pixels=True,
        needs=tuple(
            f"pcam/camelyonpatch_level_2_split_{part}_{what}.h5" for part in ("train", "valid", "test") for what in "xy"
        ),
        class_names={"": ("no tumour", "tumour")},
        kind="photographs",
        description="96 px microscope pictures of tissue",
        images=(294_912, 32_768),
        classes=2,
        side=96,
        split=VALIDATION,
        licence="CC0-1.0",
        source="https://github.com/basveeling/pcam (Bas Veeling; from Camelyon16)",
        how_to_get="Downloading it needs the package gdown, reading it h5py. Or put the six files "
        "camelyonpatch_level_2_split_{train,valid,test}_{x,y}.h5, unpacked from the links at "
        "https://github.com/basveeling/pcam, into <data root>/pcam/.",
        archive_bytes=7_000_000_000,
    ),
    TorchvisionSet(  # Parkhi et al., 2012
        name="pets",
        of="OxfordIIITPet",
        parts=by_word(train=("trainval",)),
        needs=below("oxford-iiit-pet", "images", "annotations"),
        kind="photographs",
        description="photographs of cats and dogs",
        images=(3_680, 3_669),
        classes=37,
        side=224,
        split=VALIDATION,
        licence="CC-BY-SA-4.0",
        source=f"{VGG}/pets (Visual Geometry Group, Oxford)",
        how_to_get=f"Or unpack images.tar.gz and annotations.tar.gz from {VGG}/pets into <data root>/oxford-iiit-pet/.",
        archive_bytes=811_092_049,
    ),
    TorchvisionSet(  # Cheng et al., 2017, arXiv:1703.00121
        name="resisc45",
        of="ImageFolder",
        base="resisc45/NWPU-RESISC45",
        parts=undivided,
        fetched_by="",
        needs=("resisc45/NWPU-RESISC45",),
        kind="photographs",
        description="256 px aerial pictures",
        images=(25_200, 6_300),
        classes=45,
        side=224,
        split=BY_HASH,
        licence=RESEARCH,
        source="https://gcheng-nwpu.github.io (Northwestern Polytechnical University)",
        how_to_get="Unpack NWPU-RESISC45.rar (linked at https://gcheng-nwpu.github.io) into <data root>/resisc45/ (so "
        "that <data root>/resisc45/NWPU-RESISC45/airplane is there).",
    ),
    TorchvisionSet(  # Coates et al., 2011
        name="stl10",
        of="STL10",
        parts=by_word(),
        is_pixels=True,
        needs=below("stl10_binary", "train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin"),
        kind="photographs",
        description="96 px colour photographs",
        images=(5_000, 8_000),
        classes=10,
        side=96,
        split="as published",
        licence="none stated; images from ImageNet",
        source="https://cs.stanford.edu/~acoates/stl10 (Stanford University)",
        how_to_get="Or unpack stl10_binary.tar.gz from https://cs.stanford.edu/~acoates/stl10 into <data root>/.",
        archive_bytes=2_640_397_119,
    ),
    TorchvisionSet(  # Xiao et al., 2010; only the fractions of VTAB's split, whose list only TensorFlow Datasets has
        name="sun397",
        of="SUN397",
        parts=undivided,
        needs=("SUN397/ClassName.txt",),
        kind="photographs",
        description="photographs of scenes",
        images=(87_003, 21_751),
        classes=397,
        side=224,
        split=BY_HASH,
        licence=RESEARCH,
        source="https://vision.princeton.edu/projects/2010/SUN (Princeton University)",
        how_to_get="Or unpack SUN397.tar.gz from https://vision.princeton.edu/projects/2010/SUN into <data root>/.",
        archive_bytes=39_000_000_000,
    ),
    TorchvisionSet(  # Netzer et al., 2011; cropped digits
        name="svhn",
        of="SVHN",
        parts=by_word(),
        base="svhn",
        is_pixels=True,
        needs=below("svhn", "train_32x32.mat", "test_32x32.mat"),
        class_names={"": tuple(string.digits)},
        kind="photographs",
        description="32 px colour photographs of house numbers",
        images=(73_257, 26_032),
        classes=10,
        split="as published",
        licence="for non-commercial use",
        source="http://ufldl.stanford.edu/housenumbers (Stanford University)",
        how_to_get="Or put train_32x32.mat and test_32x32.mat from http://ufldl.stanford.edu/housenumbers into "
        "<data root>/svhn/.",
        archive_bytes=246_316_205,
    ),
)
# Tasks of VTAB whose published files no library reads: their plain name, too, stands for the shards on the hub.
ON_THE_HUB: dict[str, dict[str, Any]] = {
    "clevr-distance": {
        "kind": "rendered",
        "description": "drawn scenes by the distance of the nearest thing",
        "licence": "CC-BY-4.0",
        "source": "https://cs.stanford.edu/people/jcjohns/clevr (Stanford University and Facebook AI Research)",
    },
    "dmlab": {
        "kind": "rendered",
        "description": "rendered views of mazes",
        "licence": "Apache-2.0",
        "source": "https://github.com/google-research/task_adaptation (Google)",
    },
    "kitti-distance": {  # Geiger et al., 2012
        "kind": "photographs",
        "description": "photographs of roads by the distance of the nearest vehicle",
        "licence": "CC-BY-NC-SA-3.0",
        "source": "https://www.cvlibs.net/datasets/kitti (Karlsruhe Institute of Technology and Toyota)",
    },
    "retinopathy": {  # EyePACS, 2015; cropped and normalised at radius 300 ("btgraham-300")
        "kind": "photographs",
        "description": "photographs of retinas",
        "licence": "Kaggle's competition rules",
        "source": "https://www.kaggle.com/c/diabetic-retinopathy-detection (EyePACS)",
    },
    **{
        f"dsprites-{task}": {  # Matthey et al., 2017
            "kind": "rendered",
            "description": f"64 px drawn shapes by their {task}",
            "licence": "Apache-2.0",
            "source": "https://github.com/google-deepmind/dsprites-dataset (DeepMind)",
            "side": 64,
        }
        for task in ("location", "orientation")
    },
    **{
        f"smallnorb-{task}": {  # LeCun et al., 2004
            "kind": "photographs",
            "description": f"96 px grey photographs of toys by their {task}",
            "licence": "for research",
            "source": "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small (New York University)",
            "side": 96,
        }
        for task in ("azimuth", "elevation")
    },
}

TABLE = (*OWN, *vtab.rows(ON_THE_HUB, {row.name: row for row in OWN}))
ROWS = {row.name: row for row in TABLE}
