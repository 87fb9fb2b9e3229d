"""The suites transfer and vtab: whose models, which tasks, what is left out where data are missing, what is costed."""

from __future__ import annotations

from pathlib import Path

import pytest

from baselines import published
from bench.core import registry
from bench.core.errors import UserError
from bench.core.spec import Cell
from bench.plan.preflight import check_data
from bench.plan.sizes import DataSizes, evaluation_images
from bench.suites import transfer, vtab
from bench.suites._contract import SCALES, SuiteOptions
from bench.tasks.vtab import VTAB, task_names

UPSTREAM = {"ImageNet": "imagenet", "ImageNet-21k": "imagenet-21k", "JFT-300M": "jft-300m"}
DATA = {"Oxford-IIIT-Pets": "pets", "Oxford-Flowers-102": "flowers102"}  # else the name in small letters, no hyphen


def cells(suite, scale: str, **options) -> list[Cell]:
    return suite.cells(SuiteOptions(scale=scale, **options))


def test_the_paper_s_rows_and_columns_are_asked_for() -> None:
    """Table 5: every model and upstream set but ViT-H/14 on ImageNet-21k, whose pre-training Table 3 does not state."""
    rows = published.table("table5")
    wanted = {(UPSTREAM[row["pretrain"]], model) for row in rows for model in row if row[model] and "ViT" in model}
    found = cells(transfer, "paper")
    assert {(cell.data, cell.model) for cell in found} == wanted - {("imagenet-21k", "ViT-H/14")}
    asked = {DATA.get(row["dataset"], row["dataset"].lower().replace("-", "")) for row in rows} - {"imagenetreal"}
    for cell in found:  # ReaL is a second score of ImageNet's task
        assert {task.data.partition(":")[0] for task in cell.tasks} == asked


def test_the_nineteen_tasks_are_asked_of_the_paper_s_models() -> None:
    found = cells(vtab, "paper")
    names = {f"{cell.model} ({'I21k' if cell.data == 'imagenet-21k' else 'JFT'})" for cell in found}
    assert names == {row["model"] for row in published.table("table9")}
    for cell in found:
        assert tuple(task.data.partition(":")[0] for task in cell.tasks) == task_names(VTAB)


@pytest.mark.parametrize("suite", [transfer, vtab])
@pytest.mark.parametrize("scale", SCALES)
def test_image_sizes_are_divided_by_the_patches_and_headlines_are_measured(suite, scale: str) -> None:
    measured = set()
    for cell in cells(suite, scale):
        for task in cell.tasks:
            size = task.kwargs.get("image_size")
            patch = int(cell.model.rpartition("/")[2]) if "/" in cell.model else 1
            assert size is None or size % patch == 0
            measured.add(f"{task.task}:{task.data}")
    if scale != "paper" or suite is vtab:
        assert measured & set(suite.HEADLINE)
    for name in suite.DOWNSTREAM:
        registry.load("data set", name)


def test_each_higher_resolution_stands_beside_the_own_one() -> None:
    """The same options but for the size: only then are the two compared on equal terms."""
    for cell in cells(transfer, "cpu"):
        tuned = [task for task in cell.tasks if task.task == "finetune"]
        pairs = {}
        for task in tuned:
            options = {k: v for k, v in task.options if k != "image_size"}
            pairs.setdefault(task.data, []).append((task.kwargs.get("image_size"), options))
        assert any(len(pair) == 2 for pair in pairs.values())
        for (size, options), *higher in pairs.values():
            assert size is None and all(other == 56 and options == again for other, again in higher)


def test_what_is_not_here_is_left_out_but_costed_at_scale_paper(tmp_path: Path) -> None:
    def judged(scale: str) -> set[str]:
        return {task.data for cell in cells(transfer, scale, data_root=tmp_path) for task in cell.tasks}

    assert judged("cpu") <= set(transfer.DOWNSTREAM) and "fashion-mnist" in judged("cpu")
    assert "pets:384px" in judged("paper")
    some = [cell for cell in cells(transfer, "paper") if cell.model == "ViT-B/32"][:1]
    sizes = DataSizes(root=tmp_path, published=True)
    check_data(some, sizes)
    assert (sizes["pets:384px"].train, sizes["imagenet:384px"].classes) == (3_680, 1_000)
    assert evaluation_images(some[0], sizes) > 3 * 10_000 * 512, "fine-tuning is costed"
    with pytest.raises(UserError, match="not on this machine"):
        check_data(some, DataSizes(root=tmp_path))


@pytest.mark.parametrize("suite", [transfer, vtab])
def test_models_and_upstream_sets_may_be_chosen(suite) -> None:
    found = cells(suite, "cpu", models=("ViT-micro/14",), data=("lettering",), seeds=1)
    assert [(cell.model, cell.data) for cell in found] == [("ViT-micro/14", "lettering")]
