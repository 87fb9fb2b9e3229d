"""Every figure and table of the ViT paper with the command that makes it, what it costs, and where it deviates.

    python -m tools.paper_table                    write docs/paper.md: plans every row, minutes
    python -m tools.paper_table --words-only       rewrite its words, and keep the costs that it states
    python -m tools.paper_table --rehearse DIR     rehearse every row: its own commands, in small, results below DIR

tests/house/test_paper_table.py holds the rows: their commands plan, and cells are judged by what the figure shows.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.core.formatting import join, significant
from bench.cost import units
from bench.plan.expand import expand
from bench.plan.plan import make_plan
from bench.plan.sizes import DataSizes
from bench.study import suite as suites
from bench.study.cell import Cell
from bench.study.options import StudyOptions, What, folder_name
from bench.study.overrides import Overrides
from bench.study.registry import directory_name
from bench.suites import _paper
from bench.tasks.vtab import VTAB, task_names

PAGE = Path(__file__).parents[1] / "docs" / "paper.md"
COSTS = Path(__file__).with_name("paper_costs.json")
HARDWARE, MORE, PRICE = "8xH100", "64xH100", 2.5  # money is per hour of one H100, in whatever currency
CORE_HOUR = 1.0  # money per TPUv3 core and hour, assumed: 8 for a v3-8


@dataclass(frozen=True, kw_only=True)
class Shown:
    """An evaluation that a figure shows: a task on these sets, with at least these options. `words`: for people."""

    task: str
    data: tuple[str, ...]
    words: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def missing(self, cell: Cell) -> set[str]:
        """Sets on which the cell is not judged so."""
        judged = {
            spec.data.partition(":")[0]
            for spec in cell.tasks
            if spec.task == self.task and self.options.items() <= spec.kwargs.items()
        }
        return set(self.data) - judged


@dataclass(frozen=True, kw_only=True)
class Row:
    """Figures and tables that one command makes.

    Attributes:
        name: as the paper calls them.
        about: what they show.
        suite: "" where nothing is trained for it.
        only: patterns of --only.
        shown: what every cell of the command is judged by.
        drawn: the figures of reports that show it, and whether the paper prints numbers that they lay beside.
        more: further commands: what is drawn from the cells, or measured beside them.
        deviates: from the paper, beside what all rows do; sentences.
    """

    name: str
    about: str
    suite: str = ""
    only: tuple[str, ...] = ()
    shown: tuple[Shown, ...] = ()
    drawn: str = ""
    more: tuple[str, ...] = ()
    deviates: str = ""

    @property
    def commands(self) -> tuple[str, ...]:
        """Commands as they are typed, for the scale `paper`. "…" stands for the middle of a run's folder."""
        named = " ".join(f"--only {shlex.quote(pattern)}" for pattern in self.only)
        return (f"vit-bench run --suite {self.suite} --scale paper {named}".strip(),) * bool(self.suite) + self.more

    def cells(self) -> tuple[Cell, ...]:
        """The cells that the command trains, after every pass of the planner."""
        what = What(suite=self.suite, scale="paper")
        return expand(suites.load(self.suite), what, Overrides(), DataSizes(published=True), only=self.only).chosen


TUNED = Shown(
    task="finetune",
    data=_paper.PUBLIC,
    words="fine-tuned at 384 px by Table 4 on ImageNet (with ReaL), CIFAR-10, CIFAR-100, Pets and Flowers, 3 repeats",
    options={"repeats": 3, "flip": True, "crop": 0.05},
)
LARGER = Shown(
    task="finetune",
    data=("imagenet",),
    words="ImageNet also at 512 px with averaged weights (0.9999)",
    options={"average": 0.9999},
)
PROBED = Shown(
    task="fewshot",
    data=("imagenet",),
    words="5-shot ImageNet, 3 few-shot samples, all test images",
    options={"shots": (5,)},
)
AVERAGE = Shown(
    task="fewshot",
    data=("imagenet", "caltech101", "cars", "cifar100", "dtd", "pets"),
    words="5-shot on ImageNet and five further sets",
    options={"shots": (5,)},
)
NINETEEN = Shown(
    task="vtab",
    data=task_names(VTAB),
    words="the 19 tasks of VTAB-1k at 384 px, 2,500 steps, rate 0.01, 3 repeats; means of the three groups",
)
ON_IMAGENET = Shown(task="finetune", data=("imagenet",), words="fine-tuned on ImageNet at 384 px by Table 4, 3 repeats")

NO_NUMBERS = "the paper prints no numbers"
REPORT, QUOTED = "vit-bench report --suite", "--reference paper"
INSIDE = "vit-bench report --cell results/"
ROWS: tuple[Row, ...] = (
    Row(name="Table 1", about="sizes of the ViTs", more=("vit-bench flops --paper-table",)),
    Row(
        name="Table 2",
        about="ViT-H/14 and ViT-L/16 against the state of the art",
        drawn="table `scores`",
        suite="transfer",
        only=("vit-h-14_jft-300m_s", "vit-l-16_jft-300m_s", "vit-l-16_imagenet-21k_s"),
        shown=(TUNED, LARGER),
        more=(f"{REPORT} transfer {QUOTED}",),
        deviates="BiT-L and Noisy Student are quoted there, and are here. VTAB is the row below.",
    ),
    Row(
        name="Figure 2, Table 9 (D.10)",
        about="VTAB by groups and tasks",
        drawn="`groups`: points, and not bars; Table 9's numbers are drawn by `vit-bench report --suite paper`",
        suite="vtab",
        shown=(NINETEEN,),
        deviates="Sets other than `vtab1k-…` are divided by this project. BiT-L, VIVI and S4L are quoted there.",
    ),
    Row(
        name="Figure 3, Table 5",
        about="fine-tuning by the set that was trained on",
        drawn="`pretraining-data`, a panel a set, of which the paper draws ImageNet; beside Table 5's numbers",
        suite="transfer",
        shown=(TUNED,),
        more=(f"{REPORT} transfer {QUOTED}",),
        deviates="ViT-H/14 on ImageNet-21k has no published recipe and is left out; `--models ViT-H/14 --data "
        "imagenet-21k` trains it by ViT-B's row. BiT's band is drawn between R50x1 and R152x4, trained as BiT was, "
        "with a cosine for its stairs, and fine-tuned by Table 4 and not by BiT's own rule (no mixup). Label "
        "smoothing, which the paper tuned on the small sets without stating it, is 0.",
    ),
    Row(
        name="Figure 4",
        about="5-shot accuracy by the number of images of JFT-300M",
        drawn=f"`data-size`; {NO_NUMBERS}",
        suite="data",
        shown=(PROBED,),
        deviates="Early stopping takes the best of 20 checks by accuracy on the pre-training set's test images; the "
        "paper does not say how often it looked. Every part is seen for 7 epochs of the whole, which it does not state "
        "either.",
    ),
    Row(
        name="Figure 5, Table 6",
        about="transfer against the compute of pre-training",
        drawn="`compute`: Average-5, then each set, of which the paper draws ImageNet; beside Table 6's numbers",
        suite="scaling",
        only=("axis=compute",),
        shown=(TUNED, PROBED),
        more=(f"{REPORT} scaling {QUOTED}",),
        deviates="R200x3 is not in Table 3 and is trained as R152x2.",
    ),
    Row(
        name="Figures 6, 14 (D.8)",
        about="attention roll-out",
        drawn=f"`rollout`; {NO_NUMBERS}",
        more=(f"{INSIDE}transfer/cells/vit-l-16_jft-300m_s0-…",),
    ),
    Row(
        name="Figures 7, 11 (D.7)",
        about="filters, similarity of positions, attention distance",
        drawn=f"`filters`, `positions`, `distance`, each before and after training; {NO_NUMBERS}",
        more=tuple(f"{INSIDE}scaling/cells/{name}_jft-300m_s0-…" for name in ("vit-l-32", "vit-l-16", "r50+vit-l-16")),
    ),
    Row(
        name="Table 7 (D.1)",
        about="ResNets by Adam and by SGD",
        drawn="`ablation-variants`, and table `scores`",
        suite="ablation",
        only=("axis=optimizer",),
        shown=(TUNED,),
        deviates="SGD has BiT's rate (0.48 for 4,096 images) and decay, and Adam's warm-up and linear decay, so that "
        "the two differ in the optimizer alone.",
    ),
    Row(
        name="Figure 8 (D.2)",
        about="depth, width, MLP width, patch size",
        drawn=f"`ablation-shape`; {NO_NUMBERS}",
        suite="ablation",
        only=("axis=shape",),
        shown=(AVERAGE,),
        deviates="The paper names the network in the middle and 64 layers as the most; the other networks are chosen "
        "here, the number of heads is 16, and all have ViT-L/32's rate. Its average is of sets that it does not name.",
    ),
    Row(
        name="Figure 9 (D.3)",
        about="class token or mean pooling",
        drawn=f"`ablation-pooling`; {NO_NUMBERS}",
        suite="ablation",
        only=("axis=pooling",),
        shown=(PROBED,),
        deviates="The class token is trained at the lower rate too. ViT-B/16 is Table 8's network; the figure does not "
        "name its own. Each training is read after every epoch, so that it is none of Figure 5's.",
    ),
    Row(
        name="Table 8 (D.4)",
        about="position embeddings",
        drawn="`ablation-position`",
        suite="ablation",
        only=("axis=position",),
        shown=(PROBED,),
        deviates="Relative positions have a table in every layer.",
    ),
    Row(
        name="Figure 10 (D.4)",
        about="position embeddings of ViT-L/16 by recipe",
        drawn=f"`positions`, a picture a recipe; {NO_NUMBERS}",
        suite="ablation",
        only=("axis=recipe",),
        more=(f"{INSIDE}ablation/cells/vit-l-16_jft-300m_s0-…",),
        deviates="Weights are kept at the end of a run: of the usual recipe those after 14 epochs, and not those after "
        "7, which `--horizons 7epochs` trains alone.",
    ),
    Row(
        name="Figure 12 (D.5)",
        about="speed and the largest batch by input size",
        drawn=f"`throughput`; {NO_NUMBERS}",
        suite="speed",
        deviates="On the device that is here, in images a second of one device, and not of one TPUv3 core. The hours "
        "are a fixed allowance.",
    ),
    Row(
        name="Figure 13 (D.6)",
        about="axial attention",
        drawn=f"`ablation-variants` and `throughput`, and not accuracy against either cost; {NO_NUMBERS}",
        suite="ablation",
        only=("axis=stem",),
        shown=(PROBED,),
        more=(
            "vit-bench run --suite speed --scale paper --models "
            "ViT-B/16,AxialViT-B/16,ViT-B/32,AxialViT-B/32,R50x1,AxialR50x1",
        ),
        deviates="Axial ViTs average their tokens. AxialResNet50 (`AxialR50x1`) normalises groups and not batches, "
        "since it is a BiT in all else; the paper does not state its sizes, and built on another's code.",
    ),
    Row(
        name="Section 4.6, B.1.2",
        about="masked patch prediction, three targets",
        drawn="`masked`",
        suite="masked",
        shown=(ON_IMAGENET, PROBED),
        deviates="Weight decay is JFT-300M's 0.1, which the appendix does not state. Training from scratch is "
        "ViT-B/16 on ImageNet's labels (Table 5).",
    ),
    Row(
        name="D.9 (ObjectNet)",
        about="ViT-H/14 on ObjectNet",
        deviates="No command: its images may be used for testing alone and come with their own table of ImageNet's "
        "classes, which no set of this project reads.",
    ),
)
WHOLE = Row(
    name="All of the above",
    about="every network once, with the tasks of all rows",
    suite="whole-paper",
    more=(f"{REPORT} whole-paper {QUOTED}",),
)

PROTOCOL: tuple[tuple[str, str, str, str], ...] = (  # what; the paper or its public code; here; measured effect
    ("JFT-300M", "not public", "read from your disks, or `--data imagenet-21k`, the nearest public set", "Table 5"),
    ("Hidden layer of the head", "in pre-training (section 3.1)", "the same", ""),
    (
        "Loss",
        "sigmoid per class, head's bias −10 (ImageNet −6.9)",
        "the same; bias −log of the classes: −9.8 to −6.9",
        "none measured",
    ),
    ("Adam", "β 0.9 and 0.999, decay of every parameter", "the same; big_vision decays kernels alone", ""),
    (
        "Rate",
        "linear (ImageNet: cosine) after 10,000 steps; linear ends at 1e-5 in the public configurations",
        "the same; ends at 0",
        "none measured",
    ),
    ("Clipping", "norm 1 on ImageNet (Table 3's caption)", "the same; big_vision clips everywhere", ""),
    (
        "Label smoothing",
        "tuned on small sets, not stated; 1e-4 in a public configuration of ImageNet-21k",
        "0; `--set label_smoothing=0.0001`",
        "none measured",
    ),
    ("Training images", "random crops of 5 to 100 % of the area, mirrored", "the same, bilinear", ""),
    ("Test images of pre-training", "shorter side 256, central 224", "central square to 224", "none measured"),
    ("Moments, momentum", "bfloat16 in the public code", "float32", "none measured"),
    (
        "Fine-tuning",
        "SGD, momentum 0.9, 512 images, cosine, clip 1, warm-up 500 steps (100 of 500); softmax",
        "the same",
        "",
    ),
    ("Its rate", "Table 4's, chosen on 10, 2 or 1 % held out, then all images", "the same", ""),
    (
        "Its dropout",
        "0.1 in the public configurations of L/16 and R50+B/16, else 0; not in Table 4",
        "that of pre-training: 0.1 on ImageNet and ImageNet-21k, else 0",
        "by the public code, ImageNet-21k to ImageNet, 0.1 instead of 0: B/16 −0.4, B/32 −0.4, L/16 +0.6, L/32 −0.8 "
        "points; the paper's own four numbers are within 0.15 of those with 0.1",
    ),
    (
        "Its images",
        "vision_transformer resizes whole images to 384 px for tests; big_vision takes the centre of 448 px",
        "central square to 384 px; Pets and Flowers are cropped from that, ImageNet from the whole",
        "none measured",
    ),
    ("ViT-H/14", "384 px, of which 27 patches of 14 px take 378; 518 px", "378 and 518 px", "none expected"),
    (
        "Few-shot",
        "ridge on standardised features; 2^10 in big_vision, which resizes to 256 px and takes the centre",
        "`accuracy_fixed_ridge` is that with 2^10; `accuracy` chooses the ridge by leave-one-out; central square",
        "none measured",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a row costs on these H100s, and on TPUv3 cores at the paper's own utilisation (training alone)."""

    cells: int
    device_hours: float
    days: float
    core_days: float
    dearest: tuple[tuple[str, float], ...] = ()  # runs with their hours: five, and all that `half` counts
    half: int = 0  # without so many of the dearest the rest costs at most half


def cost(row: Row, *, hardware: str = HARDWARE) -> Cost:
    """Plans the row's command."""
    asked = {"suite": row.suite, "scale": "paper", "only": row.only, "hardware": hardware, "price": f"{PRICE}/gpuh"}
    plan = make_plan(StudyOptions.of(asked), to_run=False, as_new=True)
    trained = sum((cell.flops or {}).get("paper", 0) for cell in plan.cells)
    price = plan.priced
    assert price is not None
    hours = sorted((cell.device_hours or 0.0 for cell in plan.cells), reverse=True)
    half = next(number for number, _ in enumerate(hours) if sum(hours[number:]) <= price.device_hours / 2)
    return Cost(
        half=half,
        cells=len(plan.cells),
        device_hours=price.device_hours,
        days=price.hours / 24,
        core_days=units.tpuv3_core_days(trained).value,
        dearest=tuple(
            (f"{cell.cell.model} on {cell.cell.data}", cell.device_hours or 0.0)
            for cell in sorted(plan.cells, key=lambda cell: -(cell.device_hours or 0.0))[: max(5, half)]
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Halved:
    """What half the money of Figures 4 and 5 leaves out, as `vit-bench plan --budget` chooses.

    Attributes:
        money: half of it.
        left_out: trainings, in words.
        twice: networks that some of it trains with a second seed.
    """

    money: float
    left_out: tuple[str, ...]
    twice: tuple[str, ...]


def halved() -> Halved:
    """Plans the suite `scaling`, and chooses among its trainings."""
    from bench.plan import budget

    asked = {"suite": "scaling", "scale": "paper", "hardware": HARDWARE, "price": f"{PRICE}/gpuh"}
    plan = make_plan(StudyOptions.of(asked), to_run=False, as_new=True)
    price = plan.priced
    assert price is not None
    question = budget.question(plan)
    best = budget.chosen(question, question.seconds(question.whole()) / 2)
    whole = question.whole()
    lost: dict[str, list[str]] = {}
    for (model, images), (horizons, _) in whole.items():
        kept = best.choice.get((model, images), ((), 0))[0]
        if images is not None:
            lost.setdefault(model, []).extend([f"{_plain(images / 1e6)}M images"] if not kept else [])
            continue
        lengths = [f"{h / _paper.IMAGES['JFT-300M']:g}" for h in horizons if h not in kept]
        lost.setdefault(model, []).extend([f"all images for {' and '.join(lengths)} epochs"] if lengths else [])
    twice = {model for (model, images), (_, seeds) in best.choice.items() if seeds > whole[model, images][1]}
    return Halved(
        money=price.device_hours * PRICE / 2,
        left_out=tuple(f"{model} on {join(parts)}" for model, parts in lost.items() if parts),
        twice=tuple(model for model in lost if model in twice),
    )


def page(costs: Mapping[str, Cost], half: Halved) -> str:
    """The document."""
    planned = [row for row in ROWS if row.suite]
    dearest = sorted(planned, key=lambda row: -costs[row.name].device_hours)[:5]
    whole, on_more = costs[WHOLE.name], costs[MORE]
    second = f" Some of it then trains a second seed, of {join(half.twice)}." if half.twice else ""
    lines = [
        "# The paper, whole",
        "",
        "Every figure and table of arXiv:2010.11929, with the command that makes it at the paper's own scale. "
        "`vit-bench plan` with the same options says what it costs on your devices; `--data` names a set of your own "
        "in place of JFT-300M. Written by `python -m tools.paper_table`, which with `--rehearse DIR` also runs every "
        "command below in small: what would break after a week breaks then. That takes half an hour on two cores.",
        "",
        f"Hours are of one H100, planned for {HARDWARE.replace('x', ' × ')} (`--hardware {HARDWARE}`), fine-tuning "
        f"and probes included; money at {PRICE:g} an hour. TPUv3-core-days are of training alone, at the utilisation "
        f"that the paper's Table 2 implies ({units.tpuv3_utilisation():.0%}); money at {CORE_HOUR:g} an hour of one "
        "core. Rows that need the same network train it each: the last line trains every network once.",
        "",
        "| figure, table | command | runs | H100-hours | days on 8 | money | TPUv3-core-days | money |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
        *(_cost_line(row, costs) for row in (*ROWS, WHOLE)),
        "",
        f"The dearest rows: {_list((one.name, costs[one.name].device_hours) for one in dearest)} H100-hours. The "
        f"dearest networks of the whole: {_list(whole.dearest[:5])}. The paper quotes BiT's R152x4 instead of training "
        "it; `--only vit-` leaves BiT out of Figure 3.",
        "",
        f"The whole on {MORE.replace('x', ' × ')}: {_plain(on_more.days)} days, {_plain(on_more.device_hours)} "
        f"H100-hours, {_plain(on_more.device_hours * PRICE)} of money: more devices train each network, and wait more "
        f"for its evaluations. Half the money of the whole, {_plain(whole.device_hours * PRICE / 2)}, buys all of it "
        f"but for the dearest: {join([name for name, _ in whole.dearest[: whole.half]])}.",
        "",
        f"Half the money of Figures 4 and 5 together, {_plain(half.money)}, is best spent without "
        f"{'; '.join(half.left_out)}.{second} `vit-bench plan --suite scaling --scale paper --hardware {HARDWARE} "
        f"--price {PRICE:g}/gpuh --budget {_plain(half.money).replace(',', '')}usd` chooses so, for the leads "
        "of families over each other.",
        "",
        "## What is measured, and what deviates",
        "",
        "| figure, table | shows | measured | drawn | deviates |",
        "|---|---|---|---|---|",
        *(
            f"| {row.name} | {row.about} | {_measured(row)} | {row.drawn or '–'} | {row.deviates or '–'} |"
            for row in ROWS
        ),
        "",
        "## Settings of all rows",
        "",
        "Beside the public code: vision_transformer, big_vision and big_transfer of google-research, and "
        "uncertainty-baselines for pre-training. Rates, epochs, decay and dropout of pre-training are Table 3's.",
        "",
        "| setting | paper, or its public code | here | effect |",
        "|---|---|---|---|",
        *(f"| {what} | {theirs} | {ours} | {effect or '–'} |" for what, theirs, ours, effect in PROTOCOL),
    ]
    return "\n".join(lines) + "\n"


def _cost_line(row: Row, costs: Mapping[str, Cost]) -> str:
    commands = "<br>".join(f"`{command}`" for command in row.commands) or "none"
    if not row.suite:
        return f"| {row.name} | {commands} | | | | | | |"
    one = costs[row.name]
    numbers = (
        one.device_hours,
        one.days,
        one.device_hours * PRICE,
        one.core_days,
        one.core_days * 24 * CORE_HOUR,
    )
    return f"| {row.name} | {commands} | {one.cells} | {' | '.join(map(_plain, numbers))} |"


def _measured(row: Row) -> str:
    return "; ".join(shown.words for shown in row.shown) or ("from weights" if row.more else "–")


def _plain(number: float) -> str:
    return significant(number)


def _list(named: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name} ({_plain(hours)})" for name, hours in named)


def stated() -> tuple[dict[str, Cost], Halved]:
    """What the page states."""
    kept = json.loads(COSTS.read_text())
    return {name: Cost(**one) for name, one in kept["costs"].items()}, Halved(**kept["half"])


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--words-only", action="store_true")
    p.add_argument("--rehearse", type=Path, metavar="DIR", help="where results of every row's commands, in small, go")
    given = p.parse_args()
    if given.rehearse:
        return rehearse(given.rehearse)
    if given.words_only:
        costs, half = stated()
    else:
        costs, half = {row.name: cost(row) for row in (*ROWS, WHOLE) if row.suite}, halved()
        costs[MORE] = cost(WHOLE, hardware=MORE)
        kept = {"costs": {name: asdict(one) for name, one in costs.items()}, "half": asdict(half)}
        COSTS.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(page(costs, half))
    return 0


# -- the rehearsal of every row ----------------------------------------------------------------------------------------


def in_small(command: str, results: Path) -> list[list[str]]:
    """A row's command as its rehearsal, with results below a folder: one for each run that "…" stands for."""
    words = shlex.split(command)[1:]
    if words[0] == "flops":
        return [words]
    if "--cell" in words:
        place = Path(words[words.index("--cell") + 1])  # results/SUITE/cells/RUN…
        suite, run = folder_name(place.parts[1], "paper", rehearse=True), place.name.strip("…")
        return [["report", "--cell", str(cell)] for cell in sorted((results / suite / "cells").glob(f"{run}*"))]
    words += ["--results", str(results)]
    if words[0] == "run":
        once = ["--seeds", "1"] if "speed" in words else []  # one run at a time: its three repeats would take minutes
        return [[*words, *once, "--rehearse", "--track", "none"]]
    place = words.index("--suite") + 1
    words[place] = folder_name(words[place], "paper", rehearse=True)
    return [words]


def adopt(results: Path, suite: str) -> int:
    """Give a suite's rehearsal those of its runs that the others below a folder have done: a run's folder is named by
    all that decides its results.

    Returns:
        How many.
    """
    options = StudyOptions.of({"suite": suite, "scale": "paper", "rehearse": True, "results": results})
    plan = make_plan(options, to_run=False, as_new=True)
    target = plan.store / "cells"
    done = {path.parent.name: path.parent for path in sorted(results.glob("*/cells/*/record.json"))}
    wanted = [name for one in plan.cells if (name := directory_name(one.cell)) in done and not (target / name).exists()]
    for name in wanted:
        shutil.copytree(done[name], target / name)
    return len(wanted)


def rehearse(results: Path) -> int:
    """Rehearse every row, in order; say how long each took, what failed, and which figures there are. The last row,
    which trains each network of the others once, is given theirs.

    Returns:
        0 where every command ended well.
    """
    began, failed = time.monotonic(), []
    for row in (*ROWS, WHOLE):
        started = time.monotonic()
        if row is WHOLE:
            adopt(results, row.suite)
        for command in row.commands:
            small = in_small(command, results)
            failed += [] if small else [f"{command}: there is no such run"]
            for words in small:
                done = subprocess.run([sys.executable, "-m", "bench", *words], capture_output=True, text=True)
                if done.returncode:
                    failed.append(f"vit-bench {shlex.join(words)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        print(f"{time.monotonic() - started:6.0f} s  {row.name}", flush=True)
    print(f"{time.monotonic() - began:6.0f} s  in all")
    print(*sorted(str(path) for path in results.glob("*/*/*.png")), sep="\n")
    print(*(f"failed: {text}" for text in failed), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
