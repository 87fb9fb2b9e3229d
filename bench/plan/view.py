"""Print a plan: a table, a summary, and progress messages while it is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.core.by_key import by_key
from bench.core.cell_state import CellState
from bench.core.console import add_row, drop_columns, make_table, show_table, write
from bench.core.formatting import (
    by_reason,
    compact,
    count,
    data_size,
    duration,
    flops,
    join,
    plural,
    short_count,
    significant,
)
from bench.cost import units
from bench.laws.forms import MAX_EPOCHS
from bench.plan.cost_model import ACCELERATOR_FLOPS
from bench.plan.estimate import MIN_PROCESSOR_SHARE, Reporter
from bench.plan.plan import Plan, PlannedCell
from bench.plan.repeats import RepeatedImages
from bench.plan.resources import Disk
from bench.study import registry

if TYPE_CHECKING:
    from bench.plan.price import Price

OF_TRAINING = ("seeds", "budgets", "images", "FLOPs")  # columns without meaning if nothing is trained
LEAST_USEFUL_COLUMNS = ("images", "budgets", "FLOPs", "done", "seeds")  # columns of a plan, the least useful first
MIN_WAIT_SHARE = 0.005  # a wait for images is mentioned from this fraction of the training time on
MAX_REPEATED_SETS = 4  # largest number of sets that are named with how often their images are seen
EXPECTED_RANGE = (0.85, 1.25)  # the shown range of time, as factors on the expected time


class ConsoleReporter(Reporter):
    """Shows the progress of planning on a console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def message(self, text: str) -> None:
        write(self.console, text, style="dim")

    def calibrated(self, done: int, total: int) -> None:
        """Show how many of all models have been measured, in one line that is overwritten; show nothing outside a
        terminal."""
        if self.console.is_terminal:
            end = "\r" if done < total else "\n"
            self.console.print(f"{done} of {total} models", style="dim", highlight=False, end=end)


def show(plan: Plan, console: Console) -> None:
    """Print a plan: the question of its suite, its table, its notes, and a summary."""
    heading = Text.assemble((plan.suite, "bold"), f" at scale {plan.scale}: {plan.study.suite.question}")
    console.print(heading, soft_wrap=True)
    show_table(plan_table(plan), console, spare=LEAST_USEFUL_COLUMNS)
    for line in (*plan.study.cells.notes, *plan_summary(plan)):
        write(console, line)


def plan_table(plan: Plan) -> Table:
    """Return a table with one row per model, data set and list of budgets: recipes where there are several, seeds,
    budgets (images seen), images, FLOPs, time on one worker (on named devices: fraction of their peak, hours, and
    money), and the fraction that is done."""
    groups = by_key(((p.cell.model, p.cell.data_name, p.cell.horizons), p) for p in plan.cells)
    recipes = {key: len({(m.cell.recipe, m.cell.model_options) for m in members}) for key, members in groups.items()}
    swept = max(recipes.values(), default=1) > 1
    priced = plan.priced
    times = ("one worker",) if priced is None else ("of peak", priced.unit)
    numbers = ("recipes", "seeds", "images", "FLOPs", *times, "cost", "done")
    columns = ["model", "upstream", "recipes", "seeds", "budgets", "images", "FLOPs", *times, "cost", "done"]
    without = {"" if swept else "recipes", "" if priced and priced.asked else "cost"}
    table = make_table(*(name for name in columns if name not in without), right=numbers)
    for (model, data, horizons), members in groups.items():
        left = [m for m in members if m.state not in (CellState.DONE, CellState.REFUSED)]
        done = sum(1.0 if m.state == CellState.DONE else m.fraction for m in members)
        add_row(
            table,
            model,
            data,
            *([str(recipes[model, data, horizons])] if swept else []),
            str(len({m.cell.seed for m in members})),
            _budgets(horizons),
            short_count(sum(m.images for m in members)),
            flops(sum(m.flops_left for m in left)) if left else "",
            *_times(left, plan),
            f"{done / len(members):.0%}",
        )
    if plan.rehearsal:
        drop_columns(table, "FLOPs", "one worker")
    if _takes_checkpoints(plan):
        table.columns[1].header = "images of"
        drop_columns(table, *OF_TRAINING)
    return table


def _takes_checkpoints(plan: Plan) -> bool:
    """Return whether no cell is pre-trained, because all networks come with their weights."""
    return all(registry.comes_trained(cell.cell.model) and cell.cell.horizons == (0,) for cell in plan.cells)


def _times(left: Sequence[PlannedCell], plan: Plan) -> list[str]:
    """Return the texts of a row for the time of its unfinished cells, `left`: the time on one worker; on named devices,
    the fraction of their peak that is used, hours, and with a price the money."""
    if (priced := plan.priced) is None:
        return [duration(sum(m.seconds or 0 for m in left)) if left else ""]
    hours, share = sum(m.device_hours or 0.0 for m in left), plan.utilisation(left)
    used = "" if share is None else f"{share:.0%}"
    money = [] if priced.money is None else [amount(priced.money * hours / (priced.device_hours or 1.0))]
    return [used, amount(hours), *money] if left else ["", "", *("" for _ in money)]


def _budgets(horizons: tuple[int, ...]) -> str:
    """Return budgets in images seen as a short text: "5 up to 64 k", "64 k + untrained"."""
    trained = [h for h in horizons if h > 0]
    if not trained:
        return "untrained"
    text = short_count(trained[-1]) if len(trained) == 1 else f"{len(trained)} up to {short_count(trained[-1])}"
    return text if len(trained) == len(horizons) else f"{text} + untrained"


def plan_summary(plan: Plan) -> list[str]:
    """Return sentences on a plan: what is done, what is left, what it needs, and how long it takes."""
    todo = plan.todo
    total = sum(cell.flops_left for cell in todo)
    counts = {
        "done": plan.count(CellState.DONE),
        "partly done": plan.count(CellState.PARTIAL),
        "to repeat": plan.count(CellState.FAILED) + plan.count(CellState.DAMAGED),
        "of other code or images (see --changed)": plan.count(CellState.CHANGED),
        "that cannot be run": plan.count(CellState.REFUSED),
        "to do": plan.count(CellState.MISSING),
    }
    shown = (f"{number} {what}" for what, number in counts.items() if number or what in ("done", "to do"))
    lines = [f"{plural(len(plan.cells), 'run')}: {', '.join(shown)}."]
    if todo:
        images = sum(round(cell.images * (1 - cell.fraction)) for cell in todo)
        if not _takes_checkpoints(plan) and not plan.rehearsal:
            lines.append(f"To do: {count(images)} training images, {flops(total)} (forward and backward, dense count).")
        priced = plan.priced
        lines += ([] if plan.rehearsal else [_expected(plan)]) if priced is None else _priced(priced)
        lines += [*_needs(todo), *_disk(plan.disk), *_feed(plan), *_repeated(plan.repeated, todo)]
        if (age := plan.cost.calibration.age) is not None:
            lines.append(f"Rates measured up to {duration(age)} ago on this machine (measure again: --calibrate).")
        share = min((rates.share for rates in plan.cost.calibration.rates.values()), default=1.0)
        if share < MIN_PROCESSOR_SHARE:
            lines.append(
                f"This machine is busy: the calibration got {share:.0%} of a processor. The estimate assumes "
                "an idle machine; expect more time under load."
            )
        if (
            total
            and not plan.rehearsal
            and (
                plan.machine.pricing.accelerator
                or total > ACCELERATOR_FLOPS
                or (plan.scale != "cpu" and plan.machine.device == "cpu")
            )
        ):
            lines += _accelerator_lines(plan, total)
    notes = by_reason((cell.name, cell.note) for cell in plan.cells if cell.note)
    return lines + [f"Note: {text}" for text in notes]


def _needs(todo: Sequence[PlannedCell]) -> list[str]:
    """Return sentences on the most memory that a cell needs, and on where images are read from."""
    needed = [(cell.cell, cell.needs) for cell in todo if cell.needs is not None]
    if not needed:
        return []
    cell, most = max(needed, key=lambda pair: pair[1].device)
    host = max(needs.host for _, needs in needed)
    lines = [
        f"Memory: up to {data_size(most.device)} on the device ({cell.model}, batch {cell.recipe.batch})"
        + (f" and {data_size(host)} of the host's" if host else "")
        + "."
    ]
    for tier, how in (("streamed", "decoded as they are needed"), ("mapped", "read from stored pixels on the disk")):
        if names := list(dict.fromkeys(c.data for c, needs in needed if needs.tier == tier)):
            lines.append(f"Images of {join(names)} are {tier}: {how}.")
    return lines


def _disk(disk: Disk) -> list[str]:
    """Return a sentence on the bytes that are needed on the disk, and what they are for; [] if none are."""
    parts = {
        "images": disk.shared,
        f"checkpoints of {plural(disk.running, 'run')} at a time": disk.checkpoints,
        "final weights": disk.weights,
    }
    shown = [f"{data_size(size)} of {what}" for what, size in parts.items() if size]
    return [f"Disk: about {data_size(disk.total)}: {join(shown)}."] if shown else []


def _feed(plan: Plan) -> list[str]:
    """Return a sentence on what limits the speed of cells that decode images while they train: the devices or the
    decoding; [] if there are no such cells."""
    fed = [(c, c.needs) for c in plan.todo if c.needs is not None and c.needs.decoded]
    if not fed:
        by_device = any(c.cell.recipe.decoding == "device" for c in plan.todo)
        return ["Decoding: by the device, where images are not resident; how fast was never measured."] * by_device
    slow = [(c, needs) for c, needs in fed if needs.wait >= MIN_WAIT_SHARE]
    low, high = (short_count(end([needs.decoded for _, needs in fed])) for end in (min, max))
    rate = low if low == high else f"{low} to {high}"
    of = (
        f"each {plan.machine.hardware.device.name} ({plan.machine.hardware.cores_each})"
        if plan.machine.hardware
        else "each process"
    )
    text = (
        f"Decoding: the cores of {of} decode about {rate} images a second (measured on files that are here, "
        "else as for JPEGs of 500 x 375 pixels)"
    )
    if not slow:
        return [f"{text}, more than any of these models takes: the device decides the hours."]
    worst, most = max(slow, key=lambda pair: pair[1].wait)
    decides = f"the feed decides the hours of {len(slow)} of {plural(len(fed), 'run')}"
    if plan.machine.device == "cpu":
        return [f"{text}, in turns with training: up to {most.wait:.0%} of the training time ({worst.cell.model})."]
    takes = short_count(most.decoded / (1 - most.wait))
    return [
        f"{text}, and {worst.cell.model} takes {takes}: {decides} (up to {most.wait:.0%} of the training time "
        "is waiting), the device those of the others. It decodes for itself with --set decoding=device."
        + (" Other cores: --cores N." if plan.machine.hardware else "")
    ]


def _repeated(repeated: Sequence[RepeatedImages], todo: Sequence[PlannedCell]) -> list[str]:
    """Return a sentence on images that are seen many times, which a model may memorise; [] if there are none."""
    if not repeated:
        return []
    shown = [
        f"{part.data} {_epochs(part)} ({plural(part.cells, 'run')}, {part.share:.0%} of the time)"
        for part in repeated[:MAX_REPEATED_SETS]
    ]
    more = len(repeated) - len(shown)
    return [
        f"Images repeat: {sum(part.cells for part in repeated)} of {plural(len(todo), 'run')}, "
        f"{sum(part.share for part in repeated):.0%} of the time, see each image more than {MAX_EPOCHS:g} times, which "
        f"reports warn of, since models may memorise: {'; '.join(shown)}{f'; {more} more' if more else ''}."
    ]


def _epochs(part: RepeatedImages) -> str:
    low, high = significant(part.least, 2), significant(part.most, 2)
    return f"{high} times" if low == high else f"{low} to {high} times"


def _expected(plan: Plan) -> str:
    workers, threads = plural(plan.cost.workers, "worker"), plural(plan.cost.threads, "thread")
    how = (
        f"{workers} of {plan.cost.ranks} ranks, each with {threads}"
        if plan.cost.ranks > 1
        else f"{workers} with {threads}"
    )
    low, high = (duration(factor * plan.seconds) for factor in EXPECTED_RANGE)
    basis = "calibrated on this machine" if plan.measured else "partly assumed; see --json"
    device = f"{plan.machine.device} ({plan.machine.reason})" if plan.machine.reason else plan.machine.device
    shared = ""
    if plan.machine.share != "none":
        way = "side by side" if plan.machine.share == "mps" else "in turns, so that the processor's work overlaps"
        shared = (
            f" Runs share GPUs, {way}: this if none fills one, and up to {duration(plan.seconds_in_turns)} if all do."
        )
    return f"Expected: {low} to {high} on {device}, {how} ({basis}).{shared}"


def _priced(priced: Price) -> list[str]:
    """Return sentences on the price of what is left, on the devices that were named."""
    count, name = priced.hardware.count, priced.hardware.device.name
    low, high = 1 / priced.factor, priced.factor
    lines = [
        f"On {priced.hardware}: {amount(priced.device_hours)} {priced.unit}"
        f" ({amount(priced.device_hours * low)} to {amount(priced.device_hours * high)} in 4 of 5 cases), "
        f"{duration(priced.hours * 3600)} of wall time ({duration(priced.hours * low * 3600)} to "
        f"{duration(priced.hours * high * 3600)})"
        + (
            f", {priced.ranks} devices for each run (--ranks {priced.ranks})"
            if priced.ranks > 1
            else f", {count} runs at a time"
            if count > 1
            else ""
        )
        + "."
    ]
    if priced.money is not None and priced.asked is not None:
        each, for_one = priced.asked
        whose = f"one {name}" if for_one else priced.hardware
        lines.append(
            f"Money: about {amount(priced.money)} ({amount(priced.money * low)} to "
            f"{amount(priced.money * high)}), at {compact(each)} an hour of {whose}."
        )
    lines.append(f"Rates: {join(list(priced.bases))}.")
    return lines


def _accelerator_lines(plan: Plan, total: float) -> list[str]:
    """Return sentences on the time that a study takes on accelerators, for a plan that is made for other devices.
    `total`: FLOPs that are left."""
    lines, priced, proxy = [], plan.cost.elsewhere, units.tpuv3_core_days(total)
    if priced is not None and plan.machine.hardware is None:
        low, high = priced.device_hours / priced.factor, priced.device_hours * priced.factor
        lines.append(
            f"On accelerators: about {amount(priced.device_hours)} {priced.unit} ({amount(low)} to "
            f"{amount(high)}, from a roofline; per run: vit-bench plan --hardware {priced.hardware})."
        )
    return [*lines, f"As the paper's TPUv3-core-days: {amount(proxy.value)} (proxy, at its own {proxy.assumed:.0%})."]


def amount(value: float) -> str:
    """Return a number as text with two significant digits, with three from 10 on."""
    return significant(value) if value >= 10 else significant(value, 2)
