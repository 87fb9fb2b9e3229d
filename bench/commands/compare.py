"""Compare two folders of results, two commits, or two models of a study: is B better or worse than A, and by how much?

Models, and families, are compared at equal training compute: at the levels of compute that both were trained with, read
between budgets where need be, by the study's main sets, as the study's report does. With --at images they are
compared at equal images seen. Folders and commits are compared run by run. Paired on the same seeds, few-shot samples
and test images; per task, and averaged over tasks, which decides.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core.cli import folder, parser
from bench.core.errors import EXIT_FOUND, EXIT_OK, UserError, command, nearest
from bench.core.formatting import count, flops, flops_range, percent, plural, points, printable, signed
from bench.core.measure import judged_on
from bench.core.shown import Picture, Shown
from bench.report import hub
from bench.store import grid, index
from bench.study import registry

if TYPE_CHECKING:
    import pandas as pd

    from bench.analysis.evidence import Evidence
    from bench.analysis.side_by_side import SideBySide, TaskDifference
    from bench.analysis.study_data import Records
    from bench.study.record import Record

EXAMPLES = """\
examples:
  vit-bench compare ViT-femto/7 ResNet-8-s4 --suite scaling  two models of one study, at equal compute
  vit-bench compare ViT ResNet --suite scaling               two families: the best model of each
  vit-bench compare ViT-femto/7 R11x0.25 --suite scaling --at images   at equal images seen
  vit-bench compare results/scaling other/scaling            two folders: the same runs before and after a change
  vit-bench compare hub:my-lab/scaling results/scaling       a published study (report --to hub:…), and your own
  vit-bench compare v0.1 main --suite scaling                two commits or tags that records name
  vit-bench compare results/scaling new/scaling --fail-if worse || echo "do not merge"
exit codes: 0; 4 if --fail-if applies; 2 for a mistake
"""
FAIL_IF = {"worse": ("worse",), "different": ("worse", "better", "order changes")}
AXES_AT = ("compute", "images")
APART, BY_COMPUTE = (("not in the average:", *[""] * 6), ("the average, at:", *[""] * 6))  # headings of further rows
COMMIT_LETTERS = 7  # letters of a commit's hash that are shown
VERDICT_WORDS = {
    "better": "B is better than A",
    "worse": "B is worse than A",
    "no difference": "No difference could be seen",
}


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison.

    Attributes:
        name: the side's name, as the user gave it.
        kind: what it names: "folder", "model", "family" or "commit".
        records: the side's records.
        damaged: path -> reason, for records of the searched studies that cannot be read and are left out.
    """

    name: str
    kind: str
    records: tuple[Record, ...]
    damaged: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, repr=False)
class Compared(Shown):
    """A comparison of two sides, B minus A. str() of it is the text that `vit-bench compare` prints.

    Attributes:
        a, b: the two sides.
        found: the differences, by task.
    """

    a: Side
    b: Side
    found: SideBySide

    @property
    def verdict(self) -> str:
        """ "better" or "worse" (B than A), "no difference" (none could be seen), "equal" (all scores are equal), or
        "order changes" (with compute)."""
        return self.found.verdict

    @property
    def average(self) -> TaskDifference:
        """The difference averaged over the tasks that decide: the study's main tasks or, if it has none, all tasks
        except pre-training accuracy."""
        return self.found.average

    @property
    def headline(self) -> tuple[str, ...]:
        """Names of the tasks over which `average` is taken."""
        return tuple(task.task for task in self.found.tasks)

    @cached_property
    def table(self) -> pd.DataFrame:
        """A table with rows for each averaged task, for their average, for each further task, and for the average at
        every level of compute (`train_flops`, which is missing in the other rows). Accuracies (`a`, `b`), their
        difference (`estimate`) and its interval (`low`, `high`) are fractions."""
        import pandas as pd

        rows: list[tuple[str, float | None, TaskDifference]] = [("task", None, task) for task in self.found.tasks]
        rows += [("average", None, self.average)]
        rows += [("apart", None, task) for task in self.found.apart]
        rows += [("compute", budget.train_flops, budget.contrast) for budget in self.found.budgets]
        made = [
            {"row": kind, "task": c.task or self.average.task, "train_flops": x, "a": c.a, "b": c.b}
            | {"estimate": c.estimate, "low": c.low, "high": c.high, "verdict": c.verdict, "paired": c.paired}
            for kind, x, c in rows
        ]
        return pd.DataFrame(made)

    def plot(self, path: Path | str | None = None) -> Picture:
        """Draw the differences with their intervals, by task and by compute.

        Args:
            path: path of the PNG file; None: it is written to a folder for temporary files.

        Raises:
            UserError: the file cannot be written.
        """
        from bench.report import compare_figure

        drawn = Picture.at(path, "compare.png")
        compare_figure.save(
            self.found, drawn.path, title=f"{self.b.name} (B) minus {self.a.name} (A)\n{verdict_text(self.found)}"
        )
        return drawn

    def __str__(self) -> str:
        return "\n".join([*lines(self), *([said] if (said := left_out(self)) else [])])


@command
def main(argv: list[str] | None = None) -> int:
    p = parser(
        "vit-bench compare",
        __doc__ or "",
        EXAMPLES,
        effects=lambda args: {"idle": {"for two folders": all(map(_is_study, (args.a, args.b))) and "suite results"}},
    )
    p.add_argument("a", metavar="A", help="a study's folder, a model, a family, or a commit")
    p.add_argument("b", metavar="B", help="what is compared with it")
    p.add_argument("--suite", help="the study whose models or commits are meant: its folder's name")
    p.add_argument(
        "--results",
        "--output-dir",
        "-o",
        metavar="DIR",
        type=folder,
        default=Path("results"),
        help="where it is (default: results)",
    )
    p.add_argument(
        "--at", choices=AXES_AT, help="what is equal for two models: training compute (default) or images seen"
    )
    p.add_argument("--fail-if", choices=tuple(FAIL_IF), help="exit with code 4 if B is worse (or differs) on average")
    arguments = p.parse_args(argv)
    made = compare(arguments.a, arguments.b, suite=arguments.suite, results=arguments.results, at=arguments.at)
    print(json.dumps(to_json(made)) if arguments.json else "\n".join(lines(made)))
    if damaged := left_out(made):
        print(printable(damaged), file=sys.stderr if arguments.json else sys.stdout)
    return EXIT_FOUND if made.verdict in FAIL_IF.get(arguments.fail_if, ()) else EXIT_OK


def compare(
    a: str, b: str, *, suite: str | None = None, results: Path = Path("results"), at: str | None = None
) -> Compared:
    """Find two sides, a and b, and compare them, b minus a.

    Args:
        a, b: each a folder of a study, "hub:ORG/NAME", or the name of a model, family or commit in the studies.
        suite: name of the only study to search for names; None: all studies in `results`.
        results: folder with studies.
        at: what is equal when two models are compared: training "compute", or "images" seen; None: compute.

    Raises:
        UserError: a side is not known, the sides have nothing in common, or `at` does not apply to them.
    """
    from bench.analysis import model_pairs, side_by_side

    if at not in (None, *AXES_AT):
        raise UserError(f"Models cannot be compared at {at!r}.", f"At: {', '.join(AXES_AT)}.")
    fetched = {name: str(hub.fetch(name)) for name in (a, b) if hub.accepts(name)}
    shown = {path: name for name, path in fetched.items()}
    a, b = fetched.get(a, a), fetched.get(b, b)
    folders = _is_folder(a) and _is_folder(b)
    studies = {} if folders else _of_both(_studies(suite, results), a, b)
    one, two = (dataclasses.replace(side := find(name, studies), name=shown.get(name, side.name)) for name in (a, b))
    kinds = {one.kind, two.kind}
    named = kinds & {"model", "family"}
    if at is not None and not named:
        raise UserError(f"--at {at} is for two models: folders and commits are compared run by run.", "Leave it out.")
    if kinds == named and at != "images":
        return Compared(a=one, b=two, found=model_pairs.at_compute(_evidence(studies), a, b))
    if "family" in kinds:
        raise UserError("Families are compared at equal compute, with each other or with models.", "Name two of them.")
    if at == "compute":
        raise UserError("--at compute is for two models of one study.", "Name two, or leave --at out.")
    key = side_by_side.same_images if named else side_by_side.same_cell
    shots = side_by_side.common_shots(one.records, two.records)
    tables = [side_by_side.table(s.records, key, shots=shots) for s in (one, two)]
    every = [record for study in studies.values() for record in study.records]
    others = side_by_side.table(every, side_by_side.same_cell, shots=shots) if named else None
    evidence = _evidence(studies if one.kind != "folder" else {Path(a): study_of(Path(a))})
    sides = side_by_side.compare(
        *tables, others=others, headline=evidence.headline, shots=shots, at="images" if named else "cells"
    )
    return Compared(a=one, b=two, found=sides)


# -- sides -------------------------------------------------------------------------------------------------------------

Studies = Mapping[Path, "Records"]
"""Folder of a study -> its records."""


def _is_folder(name: str) -> bool:
    return (Path(name) / "cells").is_dir()


def _is_study(name: str) -> bool:
    return hub.accepts(name) or _is_folder(name)


def study_of(path: Path) -> Records:
    """Return the records in the study's folder `path`, with the name of the suite that the study ran."""
    from bench.analysis import study_data

    return study_data.load(path, suite=index.suite_of(path))


def find(name: str, studies: Studies) -> Side:
    """Find the records that a name stands for: those of a folder, or of a model, family or commit in the studies.

    Raises:
        UserError: the name is none of these.
    """
    if _is_folder(name):
        study = study_of(Path(name))
        return Side(name=name, kind="folder", records=study.records, damaged=_damaged({Path(name): study}))
    records = [record for study in studies.values() for record in study.records]
    commit = "" if any(name in (r.cell.model, r.model.family) for r in records) else _commit(name)
    kinds = {
        "model": [record for record in records if record.cell.model == name],
        "family": [record for record in records if record.model.family == name],
        "commit": [record for record in records if commit and (record.environment.commit or "").startswith(commit)],
    }
    for kind, chosen in kinds.items():
        if chosen:
            return Side(name=name, kind=kind, records=tuple(chosen), damaged=_damaged(studies))
    models = sorted({record.cell.model for record in records})
    families = sorted({record.model.family for record in records})
    commits = sorted({record.environment.commit[:COMMIT_LETTERS] for record in records if record.environment.commit})
    close = nearest(name, [*models, *families, *(path.name for path in studies)])
    hint = f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
    known = {"Models": models[:20], "Families": families, "Commits": commits[:20]}
    raise UserError(
        f"{name!r} is no folder with results, and no model, family or commit of "
        f"{' or '.join(path.name for path in studies)}.",
        hint + " ".join(f"{kind}: {', '.join(names)}." for kind, names in known.items() if names)
        or "Name two folders of studies, or the folder above them with --results.",
    )


def _damaged(studies: Studies) -> dict[str, str]:
    from bench.analysis import study_data

    by_study = [study_data.damaged_paths(path, study) for path, study in studies.items()]
    return {path: reason for paths in by_study for path, reason in paths.items()}


def _studies(suite: str | None, results: Path) -> dict[Path, Records]:
    """Read the study named `suite` in the folder `results`, or with None all studies there except rehearsals. Return
    path of a study -> its records.

    Raises:
        UserError: there is no study of this name, or none at all.
    """
    names = [suite] if suite else [name for name in index.named(results) if not grid.is_rehearsal(results / name)]
    if suite and suite not in index.named(results):
        raise index.absent(suite, results)
    if not names:
        raise UserError(f"No study in {results}.", "Name two folders, or --results.")
    return {results / name: study_of(results / name) for name in names}


def _of_both(studies: Studies, a: str, b: str) -> Studies:
    """Return the only study that has records of both a and b, names of models or families; all studies if none has.

    Raises:
        UserError: several studies have records of both.
    """
    has = [
        path
        for path, study in studies.items()
        if {a, b} <= {name for r in study.records for name in (r.cell.model, r.model.family)}
    ]
    if len(has) > 1:
        raise UserError(f"{a} and {b} are in several studies.", f"Choose: --suite {', '.join(p.name for p in has)}.")
    return {path: studies[path] for path in has} or studies


def _evidence(studies: Studies) -> Evidence:
    """Return the evidence (records with the choices for their analysis) of all studies, as a report computes it. Models
    are judged by the headline tasks (whose mean is a model's score) of the suite that the first study ran."""
    from bench.analysis import lr_sweep

    first, *others = studies.values()
    records = {record.directory: record for study in (*others, first) for record in study.records}
    merged = dataclasses.replace(first, records=tuple(records[name] for name in sorted(records)))
    if first.suite not in registry.names("suite"):
        evidence = lr_sweep.of_chosen(merged)
    else:
        suite = registry.load("suite", first.suite)
        evidence = lr_sweep.of_chosen(merged, headline=suite.headline, far=suite.far)
    return evidence.accuracies_at(evidence.shots)


def _commit(name: str) -> str:
    """Return the hash of a commit, branch or tag, from git in the working directory. A name that git does not know is
    returned as it is if it looks like a hash; otherwise "" is returned."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"],
            capture_output=True,
            text=True,
            timeout=20,
        )
        commit = done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.SubprocessError, ValueError):
        commit = ""
    is_hash = len(name) >= 4 and all(letter in "0123456789abcdef" for letter in name)
    return commit or (name if is_hash else "")


# -- words -------------------------------------------------------------------------------------------------------------


def lines(made: Compared) -> list[str]:
    """Return the comparison as lines of text, with a table of the differences by task."""
    sides, average = made.found, made.average
    text = [f"A: {_who(made.a)}", f"B: {_who(made.b)}", f"Compared at {_equal(sides)}.", ""]
    head = ("task", "A", "B", "B - A", f"{average.level:.0%} interval", "detectable", "")
    rows: list[tuple[str, ...]] = [head]
    rows += [_row(contrast, contrast.task) for contrast in (*sides.tasks, average)]
    if sides.apart:
        rows += [APART, *(_row(contrast, contrast.task) for contrast in sides.apart)]
    if len(sides.budgets) > 1:
        rows.append(BY_COMPUTE)
        rows += [_row(b.contrast, flops(b.train_flops), _stand_ins(made, b.a_model, b.b_model)) for b in sides.budgets]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    text += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    text += ["", *_notes(sides), "", verdict_text(sides)]
    return text


def _notes(sides: SideBySide) -> list[str]:
    average = sides.average
    why = "which images were right is not recorded, or it was the same for all but a few"
    how = "image by image" if average.paired else f"as two test sets ({why})"
    if sides.at == "compute":
        counts = f"{plural(average.runs, 'seed')}, {plural(average.cells, 'level')} of compute"
    else:
        counts = f"{plural(average.runs, 'pair')} of runs, {plural(average.cells, 'point')} (run and budget)"
    text = [f"{counts}, {plural(average.draws, 'few-shot sample')}; test images compared {how}."]
    if off := average.margins.get("interpolation", 0.0):
        text.append(
            f"Between budgets accuracy is interpolated; the interval holds up to {100 * off:.1f} points for it."
        )
    if average.excluded:
        text.append(
            f"Not repeated: {', '.join(average.excluded)}. For training noise, what single runs usually owe to "
            "chance was assumed; more --seeds measure it."
        )
    text.append("Detectable: the smallest true difference that a comparison like this finds in three of four cases.")
    if sides.only_a or sides.only_b:
        text.append(f"Without a counterpart: {sides.only_a} in A, {sides.only_b} in B (run and budget).")
    if sides.partly:
        text.append(f"Not in the average, for want of a task on a side: {plural(sides.partly, 'point')}.")
    if sides.other_images:
        text.append(f"Left out, since the test images differ: {', '.join(sides.other_images)}.")
    return text


def verdict_text(sides: SideBySide) -> str:
    """Return the verdict in words: by how much, on which tasks, and what was equal on both sides."""
    average = sides.average
    rests_on = f"{judged_on([task.task for task in sides.tasks], sides.shots)}, at {_equal(sides, short=True)}"
    if sides.verdict == "equal":
        return f"All scores are equal ({rests_on})."
    number = points(average.estimate, average.low, average.high)
    if sides.verdict == "order changes":
        return f"The order changes: {_along(sides)} ({rests_on})."
    more = ""
    if sides.changes:
        ends = [
            f"{signed(b.contrast.estimate)} at {flops(b.train_flops)}" for b in (sides.budgets[0], sides.budgets[-1])
        ]
        several = len({b.contrast.verdict for b in sides.budgets}) > 1
        more = f" It changes with compute, {' to '.join(ends)}{': ' + _along(sides) if several else ''}."
    return f"{VERDICT_WORDS[average.verdict]}: {number} ({rests_on}).{more}"


def _along(sides: SideBySide) -> str:
    """Return in words the verdict at every level of compute, from the least to the most: "worse at 16.5 to 66 GFLOPs,
    no difference at 132 GFLOPs"."""
    parts = []
    for verdict, group in groupby(sides.budgets, key=lambda budget: budget.contrast.verdict):
        at = [budget.train_flops for budget in group]
        parts.append(f"{verdict} at {flops_range(at[0], at[-1])}")
    return ", ".join(parts)


def _equal(sides: SideBySide, *, short: bool = False) -> str:
    """Return in words what is equal on both sides (compute, images seen, or the runs with their images seen), with its
    range. `short`: for use in a sentence."""
    low, high = sides.span
    seen = f"{count(low)} to {count(high)} images seen" if low < high else f"{count(high)} images seen"
    if sides.at == "compute":
        return f"{'' if short else 'equal compute, '}{flops_range(low, high)} of training"
    if sides.at == "images":
        return f"{seen}, not at equal compute" if short else f"equal images seen, {seen}"
    return seen if short else f"the same runs, {seen}"


def _stand_ins(made: Compared, a: str, b: str) -> str:
    """Return in words which model represents each side that is a family; "" if neither side is one. `a`, `b`: the
    models of the two sides at one level of compute."""
    named = [model for side, model in ((made.a, a), (made.b, b)) if side.kind == "family"]
    return f"({', '.join(named)})" if named else ""


def left_out(made: Compared) -> str:
    """Return one line that names the damaged records that were left out; "" without any."""
    from bench.analysis import study_data

    return study_data.left_out({**made.a.damaged, **made.b.damaged})


def _who(side: Side) -> str:
    commits = sorted(
        {record.environment.commit[:COMMIT_LETTERS] for record in side.records if record.environment.commit}
    )
    shown = f", commit {', '.join(commits[:3])}{', …' if len(commits) > 3 else ''}" if commits else ""
    return f"{side.name} ({len(side.records)} records{shown})"


def _row(contrast: TaskDifference, name: str, more: str = "") -> tuple[str, ...]:
    return (
        name,
        f"{percent(contrast.a)} %",
        f"{percent(contrast.b)} %",
        signed(contrast.estimate),
        f"[{signed(contrast.low)}, {signed(contrast.high)}]",
        percent(contrast.detectable),
        f"{contrast.verdict} {more}".strip(),
    )


def to_json(made: Compared) -> dict[str, Any]:
    """Return the whole comparison as JSON types, for `--json`."""

    def named(contrast: TaskDifference) -> dict[str, Any]:
        ends = {"low": contrast.low, "high": contrast.high, "verdict": contrast.verdict}
        return dataclasses.asdict(contrast) | ends

    sides = made.found
    judged = {"tasks": [named(task) for task in sides.tasks], "average": named(sides.average)}
    judged["apart"] = [named(task) for task in sides.apart]
    judged["budgets"] = [dataclasses.asdict(b) | {"contrast": named(b.contrast)} for b in sides.budgets]
    one, two = ({"name": side.name, "kind": side.kind, "records": len(side.records)} for side in (made.a, made.b))
    damaged = [{"record": path, "reason": why} for path, why in {**made.a.damaged, **made.b.damaged}.items()]
    verdict = {"verdict": made.verdict, "text": verdict_text(sides), "damaged": damaged}
    return {"a": one, "b": two, **verdict, **dataclasses.asdict(sides), **judged}


if __name__ == "__main__":
    sys.exit(main())
