"""What a person sees: the plan, live progress, the findings. A live table on a terminal, plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from bench.cost import units
from bench.plan.estimate import BUSY
from bench.plan.plan import Plan, PlannedCell

LOG_EVERY = 15.0  # seconds between plain lines
LARGE = 1e18  # FLOPs from which a plan is also given in accelerator time
SMALL = 64  # pixels per side, up to which a large accelerator waits for its host more than it computes
SPARE = ("images", "budgets", "FLOPs", "done", "seeds")  # columns of a plan, the least useful first
CLUSTER_UTILISATION = 0.4  # what well-tuned ViT training reaches; assumed, and said so


def duration(seconds: float | None) -> str:
    """Seconds as people say them: "45 s", "3.2 min", "5.1 h", "12 days"."""
    if seconds is None:
        return "?"
    for limit, divisor, unit in ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h"), (6.3e7, 86_400, "days")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}" if divisor == 1 else f"{seconds / divisor:.1f} {unit}"
    return f"{seconds / 31_557_600:,.0f} years"


def flops(value: float | None) -> str:
    """FLOPs with an SI prefix: "3.2 TFLOP", "224 EFLOP"."""
    if value is None:
        return "?"
    for factor, prefix in ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}FLOP"
    return f"{value:.3g} FLOP"


def count(value: float) -> str:
    """A count with thousands separated, or with a prefix when large."""
    for factor, suffix in ((1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {suffix}"
    return f"{value:,.0f}"


def ticker(console: Console) -> Callable[[int, int], None]:
    """Shows how many models are calibrated, in one line that is written over; nothing in a log."""

    def tick(done: int, total: int) -> None:
        if console.is_terminal:
            console.print(f"{done} of {total} models", style="dim", highlight=False, end="\r" if done < total else "\n")

    return tick


def show_table(table: Table, console: Console, *, spare: Iterable[str] = ()) -> None:
    """Print a table within the console's width: columns that can be spared go, then what is left is folded, so that no
    two names look alike. In a log no line ends in blanks."""
    options = console.options.update(max_width=100_000)
    for name in spare:
        if Measurement.get(console, options, table).maximum <= console.width:
            break
        table.columns = [column for column in table.columns if column.header != name]
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def plan_table(plan: Plan) -> Table:
    """One row per (model, data set): recipes where there are several, seeds, budgets (images seen), images, FLOPs, time
    on one worker."""
    groups: dict[tuple, list[PlannedCell]] = {}
    for planned in plan.cells:
        cell = planned.cell
        groups.setdefault((cell.model, cell.data_name, cell.horizons), []).append(planned)
    recipes = {key: len({(m.cell.recipe, m.cell.model_options) for m in members}) for key, members in groups.items()}
    swept = max(recipes.values(), default=1) > 1
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, justify in (
        ("model", "left"), ("upstream", "left"), *([("recipes", "right")] if swept else []), ("seeds", "right"),
        ("budgets", "left"), ("images", "right"), ("FLOPs", "right"), ("one worker", "right"), ("done", "right"),
    ):  # fmt: skip
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for key, members in groups.items():
        model, data, horizons = key
        left = [m for m in members if m.state != "done"]
        done = len(members) - len(left) + sum(m.fraction for m in left)
        table.add_row(
            model,
            data,
            *([str(recipes[key])] if swept else []),
            str(len({m.cell.seed for m in members})),
            _budgets(horizons),
            count(sum(m.images for m in members)),
            flops(sum((m.flops or {}).get("dense", 0) for m in left)) if left else "",
            duration(sum(m.seconds or 0 for m in left)) if left else "",
            f"{done / len(members):.0%}",
        )
    return table


def _budgets(horizons: tuple[int, ...]) -> str:
    """Compute budgets in images seen, short: "5 up to 64,000", "64,000 + untrained"."""
    trained = [h for h in horizons if h > 0]
    if not trained:
        return "untrained"
    text = count(trained[-1]) if len(trained) == 1 else f"{len(trained)} up to {count(trained[-1])}"
    return text if len(trained) == len(horizons) else f"{text} + untrained"


def plan_summary(plan: Plan) -> list[str]:
    """The plan in a few sentences."""
    todo = plan.todo
    total = sum((cell.flops or {}).get("dense", 0) for cell in todo)
    images = sum(round(cell.images * (1 - cell.fraction)) for cell in todo)
    lines = [
        f"{len(plan.cells)} cells: {plan.count('done')} done, {plan.count('partial')} partly done, "
        f"{plan.count('failed') + plan.count('damaged')} to repeat, {plan.count('missing')} to do."
    ]
    if todo:
        how = f"{plan.workers} worker{'s' * (plan.workers > 1)} with {plan.threads} thread{'s' * (plan.threads > 1)}"
        if plan.ranks > 1:
            how = how.replace(" with ", f" of {plan.ranks} ranks, each with ")
        lines.append(f"To do: {count(images)} training images, {flops(total)} (forward and backward, dense count).")
        low, high = 0.85 * plan.seconds, 1.25 * plan.seconds
        basis = "calibrated on this machine" if plan.measured else "partly assumed; see --json"
        lines.append(f"Expected: {duration(low)} to {duration(high)} on {plan.device}, {how} ({basis}).")
        if plan.rates_age is not None:
            age = duration(plan.rates_age)
            lines.append(f"Rates measured up to {age} ago on this machine (measure again: --calibrate).")
        share = min((rate.share for rate in plan.rates.values()), default=1.0)
        if share < BUSY:
            lines.append(
                f"This machine is busy: the calibration got {share:.0%} of a processor. The time is that of a free "
                "machine; while others use it, expect more."
            )
        if total and (plan.accelerator or total > LARGE or (plan.scale != "cpu" and plan.device == "cpu")):
            lines += _accelerator_lines(plan, total)
    notes = [(cell.name, cell.note) for cell in plan.cells if cell.note]
    return lines + [f"Note: {text}" for text in by_reason(notes)]


def _accelerator_lines(plan: Plan, total: float) -> list[str]:
    """What a study takes on the devices that it is meant for, from its FLOPs."""
    hours, proxy = units.gpu_hours(total, plan.accelerator or "H100", CLUSTER_UTILISATION), units.tpuv3_core_days(total)
    lines = [
        f"On accelerators: about {_amount(hours.value)} {hours.unit} at {CLUSTER_UTILISATION:.0%} of its bfloat16 peak "
        f"(assumed), or {_amount(proxy.value)} TPUv3-core-days (proxy, at the paper's own {proxy.assumed:.0%})."
    ]
    if any(cell.cell.image_size <= SMALL for cell in plan.todo):
        lines.append(
            f"Models at {SMALL} px and less come nowhere near that utilisation: take it as the least; bench.plan on "
            "the accelerator itself measures."
        )
    return lines


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def by_reason(cells: Iterable[tuple[str, str]]) -> list[str]:
    """What is said of (cell, reason): each reason once, with the cells it holds for."""
    groups: dict[str, list[str]] = {}
    for name, reason in cells:
        groups.setdefault(reason, []).append(name)
    return [f"{_several(names)}: {reason}" for reason, names in groups.items()]


def _several(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} cells ({', '.join(names[:2])}{', …' * (len(names) > 2)})"


class Progress:
    """Progress of a run. Use as a context manager; feed it events, call `tick` often."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self.plan, self.console = plan, console
        self.expected = {cell.name: cell.seconds or 1.0 for cell in plan.todo}
        self.fraction = {cell.name: cell.fraction for cell in plan.todo}
        self.cells = {cell.name: cell for cell in plan.todo}
        self.running: dict[int, dict[str, Any]] = {}
        self.finished: list[str] = []
        self.failed: dict[str, str] = {}
        self.started = time.monotonic()
        self._last_line = self.started
        self._start = dict(self.fraction)
        self.live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None

    def __enter__(self) -> Progress:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def _share(self, running: dict[str, Any]) -> float:
        """How much of a running cell is done, in expected time: its training, and the horizons it has read. The one
        that is being read counts by the time it has taken, as far as was expected."""
        cell = self.cells[running["cell"]]
        steps = running.get("done", 0) / running["total"] if running.get("total") else 0.0
        if not cell.evaluate_share:
            return min(0.99, steps)
        horizons = len(cell.cell.horizons)
        read = running.get("horizons", 0)
        if running.get("phase") == "evaluating":
            expected = cell.evaluate_share * self.expected[cell.name] / horizons
            read += min(0.95, (time.monotonic() - running["since"]) / expected) if expected else 0.0
        return min(0.99, (1 - cell.evaluate_share) * steps + cell.evaluate_share * min(1.0, read / horizons))

    def _look(self) -> None:
        """Bring the fractions of what runs up to this moment."""
        for running in self.running.values():
            if "done" in running:
                self.fraction[running["cell"]] = self._share(running)

    def _seconds(self, fraction: dict[str, float]) -> float:
        """Expected seconds of these parts of the cells that can be run."""
        return sum(self.expected[name] * fraction[name] for name in self.expected if name not in self.failed)

    def left(self) -> float | None:
        """Seconds left, from what was expected corrected by how it has gone so far."""
        total, done = self._seconds(dict.fromkeys(self.expected, 1.0)), self._seconds(self.fraction)
        gained = done - self._seconds(self._start)
        elapsed = time.monotonic() - self.started
        if gained < 0.02 * total or not total:
            return max(0.0, self.plan.seconds * total / sum(self.expected.values()) - elapsed)
        return (total - done) * elapsed / gained

    def event(self, worker: int, event: dict[str, Any]) -> None:
        """Take in one event of a worker."""
        name, kind = event.get("cell", ""), event["event"]
        if kind == "notice":
            self._line(event["message"])
            return
        if kind in ("start", "progress"):
            running = self.running.setdefault(worker, {})
            running.update(event, since=time.monotonic())
            self._look()
            return
        self.running.pop(worker, None)
        if kind == "done":
            self.fraction[name] = 1.0
            self.finished.append(name)
            self.failed.pop(name, None)  # another worker could
            if event["status"] != "complete":
                self._line(f"{event['status']}: {name}: {event['reason']}")
        elif kind == "failed":
            if event["reason"] not in self.failed.values():  # what to do about it is said at the end
                self._line(f"failed: {name}: {event['reason'].splitlines()[0]}")
            self.failed[name] = event["reason"]
        if not self.live:
            self._line(self._summary())

    def tick(self) -> None:
        """Refresh the display."""
        self._look()
        if self.live:
            self.live.update(self._render())
        elif time.monotonic() - self._last_line > LOG_EVERY:
            self._line(f"{self._summary()}; " + "; ".join(map(self._describe, self.running.values())))

    def _line(self, text: str) -> None:
        self._last_line = time.monotonic()
        self.console.print(Text(text), soft_wrap=True, highlight=False)

    def _summary(self) -> str:
        share = self._seconds(self.fraction) / max(1e-9, sum(self.expected.values()))
        elapsed = duration(time.monotonic() - self.started)
        failed = f", {len(self.failed)} failed" if self.failed else ""
        cells = f"{len(self.finished)} of {len(self.expected)} cells{failed}"
        return f"[{elapsed}] {share:.0%} done, {cells}, about {duration(self.left())} left"

    def _render(self) -> Group:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("worker", "model", "upstream", "seed", "progress", "phase", "loss"):
            table.add_column(name)
        for worker, r in sorted(self.running.items()):
            share = self.fraction[r["cell"]]
            bar = "━" * round(20 * share) + "─" * (20 - round(20 * share))
            loss = f"{r['loss']:.3f}" if r.get("loss") is not None else ""
            phase = r.get("phase", "starting")
            table.add_row(str(worker), r["model"], r["data"], str(r["seed"]), f"{bar} {share:4.0%}", phase, loss)
        return Group(table, Text(self._summary()))

    def _describe(self, running: dict[str, Any]) -> str:
        share, phase = self.fraction[running["cell"]], running.get("phase", "starting")
        return f"{running.get('model')} on {running.get('data')} seed {running.get('seed')} {share:.0%} ({phase})"
