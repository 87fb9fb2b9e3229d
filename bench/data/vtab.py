"""VTAB's nineteen tasks in complete copies that others have published, with the official splits, as rows of the table
of public data sets.

`vtab-NAME` is a task's training and test part as task_adaptation divides TensorFlow's data sets, written losslessly
into tar shards by CLIP-benchmark (SUN397: Parquet, by someone else). The validation parts are not in the shards.
`vtab1k-NAME` has the 1,000 training images of VTAB-1k (`train800` and `val200`) and the whole test part, from lists
that accompany an archive of JPEG files, which were compressed once more than the originals. Parameter-efficient
fine-tuning is usually evaluated on this archive.

Numbers of images are computed from the sizes of TensorFlow's sets and the fractions in task_adaptation/data. A row says
"not verified" if a number or the commit is stated on no page of the set. If it is the commit, the newest one is
fetched, and its name is used from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bench.data.data_set import DataSet
from bench.data.hub_copy import Repository
from bench.data.hub_sets import HubSet, ListedSet

CLIP = "clip-benchmark/wds_vtab-"
VTAB_1K = Repository(repo="XiN0919/VTAB-1k", archive="vtab-1k.zip", makes=("vtab-1k",))
SHARED = ("description", "licence", "source", "kind")
DIVIDED = "VTAB's training part (without its validation part) and test part"


@dataclass(frozen=True, kw_only=True)
class PublishedTask:
    """How a task of VTAB is published.

    Attributes:
        repo: repository on the Hugging Face hub.
        folder: folder in the archive of VTAB-1k.
        images: numbers of training and test images in the repository's shards.
        commit: commit of the repository; "" if it is not verified.
        counted: whether `images` are confirmed by a page of the hub or, for the test part, by DataComp's list of test
            sets.
        classes: number of classes of the task; None to take that of the set's own row in the table.
        values: number of different labels in the shards, if VTAB groups them into fewer classes; else None.
    """

    repo: str
    folder: str
    images: tuple[int, int]
    commit: str = ""
    counted: bool = True
    classes: int | None = None
    values: int | None = None


TASKS: Mapping[str, PublishedTask] = {
    "caltech101": PublishedTask(
        repo=f"{CLIP}caltech101",
        folder="caltech101",
        images=(2_753, 6_085),
        commit="96c3ed2decb80d5fe120fb8a0179f25c82cbee78",
    ),
    "cifar100": PublishedTask(
        repo=f"{CLIP}cifar100",
        folder="cifar",
        images=(45_000, 10_000),
        commit="c181ce0341d21e40ebe4f35a8fc56dd547e20418",
    ),
    "clevr-count": PublishedTask(
        repo=f"{CLIP}clevr_count_all",
        folder="clevr_count",
        images=(63_000, 15_000),
        commit="8b5dce4d5393a04fb58b9261b22a881b02e379b1",
    ),
    "clevr-distance": PublishedTask(
        repo=f"{CLIP}clevr_closest_object_distance",
        classes=6,
        folder="clevr_dist",
        images=(63_000, 15_000),
        commit="ec9c04224a95836ca0344a6000ec8d8bc8a6d4f2",
    ),
    "dmlab": PublishedTask(
        repo=f"{CLIP}dmlab", classes=6, folder="dmlab", images=(65_550, 22_735), commit="b59ea17", counted=False
    ),
    "dsprites-location": PublishedTask(
        repo=f"{CLIP}dsprites_label_x_position",
        classes=16,
        folder="dsprites_loc",
        values=32,
        images=(589_824, 73_728),
        commit="baf7ff2bc35ab92c1d2e0ae01e6ef723075b8344",
    ),
    "dsprites-orientation": PublishedTask(
        repo=f"{CLIP}dsprites_label_orientation",
        classes=16,
        folder="dsprites_ori",
        values=40,
        images=(589_824, 73_728),
        commit="3973569",
    ),
    "dtd": PublishedTask(repo=f"{CLIP}dtd", folder="dtd", images=(1_880, 1_880)),
    "eurosat": PublishedTask(repo=f"{CLIP}eurosat", folder="eurosat", images=(16_200, 5_400), commit="8b9fc2f"),
    "flowers102": PublishedTask(repo=f"{CLIP}flowers", folder="oxford_flowers102", images=(1_020, 6_149)),
    "kitti-distance": PublishedTask(
        repo=f"{CLIP}kitti_closest_vehicle_distance", classes=4, folder="kitti", images=(6_347, 711), counted=False
    ),
    "patch-camelyon": PublishedTask(
        repo=f"{CLIP}pcam",
        folder="patch_camelyon",
        images=(262_144, 32_768),
        commit="502695fe1a141108650e3c5b91c8b5e0ff84ed49",
    ),
    "pets": PublishedTask(repo=f"{CLIP}pets", folder="oxford_iiit_pet", images=(2_944, 3_669), commit="3fbd1f2"),
    "resisc45": PublishedTask(repo=f"{CLIP}resisc45", folder="resisc45", images=(18_900, 6_300), commit="bede752"),
    "retinopathy": PublishedTask(
        repo=f"{CLIP}diabetic_retinopathy",
        classes=5,
        folder="diabetic_retinopathy",
        images=(35_126, 42_670),
        counted=False,
    ),
    "smallnorb-azimuth": PublishedTask(
        repo=f"{CLIP}smallnorb_label_azimuth",
        classes=18,
        folder="smallnorb_azi",
        images=(24_300, 12_150),
        commit="7816890",
    ),
    "smallnorb-elevation": PublishedTask(
        repo=f"{CLIP}smallnorb_label_elevation",
        classes=9,
        folder="smallnorb_ele",
        images=(24_300, 12_150),
        commit="94364b7e28609635de90d0a5f6275134db487229",
    ),
    "sun397": PublishedTask(repo="dpdl-benchmark/sun397", folder="sun397", images=(76_128, 21_750), counted=False),
    "svhn": PublishedTask(repo=f"{CLIP}svhn", folder="svhn", images=(65_931, 26_032), commit="d6a7f60"),
}


def rows(facts: Mapping[str, Mapping[str, Any]], own: Mapping[str, DataSet]) -> tuple[DataSet, ...]:
    """Return the rows of all tasks in the table of public data sets: `vtab-NAME`, `vtab1k-NAME`, and NAME itself if no
    class of torchvision reads the set.

    Args:
        facts: name -> description, licence, source and kind of each set that no class of torchvision reads.
        own: name -> row of each set that torchvision reads, whose facts also apply to the shards.
    """
    made: list[DataSet] = []
    for name, task in TASKS.items():
        shared = facts.get(name) or {word: getattr(own[name], word) for word in SHARED}
        what, licence, of_images, kind = (shared[word] for word in SHARED)
        classes = task.classes or own[name].classes
        side = getattr(own.get(name), "side", None) or 224
        note = "" if task.counted else "; numbers of images not verified"
        described = f"{what.split(', ')[0]}, {classes} classes"
        common = {"licence": licence, "kind": kind, "classes": classes, "side": side}
        shards = HubSet(
            name=f"vtab-{name}",
            description=f"{described}, {task.images[0]:,} + {task.images[1]:,}",
            split=DIVIDED + note,
            images=task.images,
            hub=Repository(repo=task.repo, revision=task.commit, test="test"),
            source=f"https://huggingface.co/datasets/{task.repo}; the images: {of_images}",
            how_to_get="It is fetched from the Hugging Face hub.",
            bins=(task.values, classes) if task.values and classes else None,
            **common,
        )
        made.append(shards)
        if name in facts:  # revision 2: VTAB's parts, from the shards
            plain = {"how_to_get": "It is fetched from the Hugging Face hub.", "side": shared.get("side", 224)}
            made.append(replace(shards, name=name, revision=2, **plain))
        listed = ListedSet(
            name=f"vtab1k-{name}",
            description=f"{described}, 1,000 + {task.images[1]:,}",
            images=(1_000, task.images[1]),
            hub=VTAB_1K,
            split="VTAB-1k's train800 and val200 to train with, its test part; JPEG, compressed once more" + note,
            source=f"https://huggingface.co/datasets/{VTAB_1K.repo}; the images: {of_images}",
            how_to_get=f"Unpack {VTAB_1K.archive} (4.7 GB, all nineteen tasks) from "
            f"https://huggingface.co/datasets/{VTAB_1K.repo} into <data root>/.",
            folder=f"vtab-1k/{task.folder}",
            **common,
        )
        made.append(listed)
    return tuple(made)
