"""Compare two folders of results, two commits, or two models of a study: is B better or worse than A, and by how much?

Paired on the same cells, seeds, few-shot draws and test images; per task, and averaged over tasks, which decides.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core.cli import folder, parser
from bench.core.errors import EXIT_FOUND, EXIT_OK, UserError, command, nearest
from bench.core.formatting import percent, plural, printable, signed
from bench.store import index

if TYPE_CHECKING:
    from bench.analysis.side_by_side import Contrast, SideBySide
    from bench.core.record import Record

EXAMPLES = """\
examples:
  python -m bench.compare results/scaling other/scaling            two folders: the same cells before and after a change
  python -m bench.compare ViT-nano/14 R8x0.25-s2 --suite scaling    two models of one study
  python -m bench.compare v0.1 main --suite scaling                two commits or tags that records name
  python -m bench.compare results/scaling new/scaling --fail-if worse || echo "do not merge"
exit codes: 0; 4 if --fail-if applies; 2 for a mistake
"""
FAIL_IF = {"worse": ("worse",), "different": ("worse", "better")}
COMMIT = 7  # letters that are shown


@dataclass(frozen=True, kw_only=True)
class Side:
    """What was named. `kind`: "folder", "model" or "commit". `damaged`: path -> reason, of records left out where it
    was looked for."""

    name: str
    kind: str
    records: tuple[Record, ...]
    damaged: Mapping[str, str] = field(default_factory=dict)


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("python -m bench.compare", __doc__ or "", EXAMPLES)
    p.add_argument("a", metavar="A", help="a study's folder, a model, or a commit")
    p.add_argument("b", metavar="B", help="what is compared with it")
    p.add_argument("--suite", help="the study whose models or commits are meant: its folder's name")
    p.add_argument("--results", type=folder, default=Path("results"), help="where it is (default: results)")
    p.add_argument("--fail-if", choices=tuple(FAIL_IF), help="exit with code 4 if B is worse (or differs) on average")
    p.add_argument("--json", action="store_true", help="machine-readable output on standard output")
    arguments = p.parse_args(argv)
    a, b, found = compare(arguments.a, arguments.b, suite=arguments.suite, results=arguments.results)
    print(json.dumps(to_json(a, b, found)) if arguments.json else "\n".join(lines(a, b, found)))
    if damaged := left_out(a, b):
        print(printable(damaged), file=sys.stderr if arguments.json else sys.stdout)
    return EXIT_FOUND if found.verdict in FAIL_IF.get(arguments.fail_if, ()) else EXIT_OK


def compare(
    a: str, b: str, *, suite: str | None = None, results: Path = Path("results")
) -> tuple[Side, Side, SideBySide]:
    """Find both sides and compare them.

    Raises:
        UserError: a side that is nothing known, or nothing that both have.
    """
    from bench.analysis import side_by_side

    one, two = (find(name, suite=suite, results=results) for name in (a, b))
    models = "model" in (one.kind, two.kind)
    key = side_by_side.same_images if models else side_by_side.same_cell
    tables = (side_by_side.table(side.records, key) for side in (one, two))
    others = side_by_side.table(_study(suite, results)[0], side_by_side.same_cell) if models else None
    return one, two, side_by_side.compare(*tables, others=others)


# -- sides -------------------------------------------------------------------------------------------------------------


def find(name: str, *, suite: str | None, results: Path) -> Side:
    """The records that a name stands for: those of a folder; of a model in the study; or of a commit.

    Raises:
        UserError: it is none of these.
    """
    from bench.analysis import study_data

    if (Path(name) / "cells").is_dir():
        found = study_data.load(Path(name))
        damaged = study_data.damaged_paths(Path(name), found)
        return Side(name=name, kind="folder", records=found.records, damaged=damaged)
    records, damaged = _study(suite, results)
    chosen = tuple(record for record in records if record.cell.model == name)
    if chosen:
        return Side(name=name, kind="model", records=chosen, damaged=damaged)
    commit = _commit(name)
    chosen = tuple(record for record in records if commit and (record.environment.commit or "").startswith(commit))
    if chosen:
        return Side(name=name, kind="commit", records=chosen, damaged=damaged)
    models = sorted({record.cell.model for record in records})
    commits = sorted({record.environment.commit[:COMMIT] for record in records if record.environment.commit})
    close = nearest(name, [*models, *index.named(results)])
    hint = f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
    raise UserError(
        f"{name!r} is no folder with results, and no model or commit of {suite or 'any study here'}.",
        f"{hint}Models: {', '.join(models[:20])}. Commits: {', '.join(commits[:20])}.",
    )


def _study(suite: str | None, results: Path) -> tuple[tuple[Record, ...], dict[str, str]]:
    """The records of one study, or of all of them, and the damaged ones by path.

    Raises:
        UserError: there is no such study, or none at all.
    """
    from bench.analysis import study_data

    names = [suite] if suite else index.named(results)
    if suite and suite not in index.named(results):
        raise index.absent(suite, results)
    if not names:
        raise UserError(f"No study in {results}.", "Name two folders, or --results.")
    records: list[Record] = []
    damaged: dict[str, str] = {}
    for name in names:
        found = study_data.load(results / name)
        records += found.records
        damaged |= study_data.damaged_paths(results / name, found)
    return tuple(records), damaged


def _commit(name: str) -> str:
    """The hash that a commit, branch or tag of the repository in this folder has; a hash itself without one."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"],
            capture_output=True,
            text=True,
            timeout=20,
        )
        found = done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.SubprocessError, ValueError):
        found = ""
    is_hash = len(name) >= 4 and all(letter in "0123456789abcdef" for letter in name)
    return found or (name if is_hash else "")


# -- words -------------------------------------------------------------------------------------------------------------


def lines(a: Side, b: Side, found: SideBySide) -> list[str]:
    """The comparison as text."""
    head = ("task", "A", "B", "B - A", f"{found.average.level:.0%} interval", "detectable", "")
    rows = [head, *(_row(contrast) for contrast in (*found.tasks, found.average))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    text = [f"A: {_who(a)}", f"B: {_who(b)}", ""]
    text += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    average = found.average
    how = "image by image" if average.paired else "as two test sets (records do not say which images were right)"
    counts = f"{plural(average.runs, 'pair')} of runs, {plural(average.cells, 'point')} (cell and horizon)"
    text += ["", f"{counts}, {plural(average.draws, 'few-shot draw')}; test images compared {how}."]
    if average.excluded:
        text.append(
            f"Not repeated: {', '.join(average.excluded)}. For training noise, what single runs usually owe to "
            "chance was assumed; more --seeds measure it."
        )
    text.append("Detectable: the smallest true difference that a comparison like this finds in three of four cases.")
    if found.only_a or found.only_b:
        text.append(f"Without a counterpart: {found.only_a} in A, {found.only_b} in B (cell and horizon).")
    if found.other_images:
        text.append(f"Left out, since the test images differ: {', '.join(found.other_images)}.")
    words = {
        "equal": "All scores are equal.",
        "no difference": "No difference that could be seen.",
        "better": "B is better than A.",
        "worse": "B is worse than A.",
    }
    return [*text, "", words[found.verdict]]


def left_out(a: Side, b: Side) -> str:
    """One line on damaged records; "" where there are none."""
    from bench.analysis import study_data

    return study_data.left_out({**a.damaged, **b.damaged})


def _who(side: Side) -> str:
    commits = sorted({record.environment.commit[:COMMIT] for record in side.records if record.environment.commit})
    shown = f", commit {', '.join(commits[:3])}{', …' if len(commits) > 3 else ''}" if commits else ""
    return f"{side.name} ({len(side.records)} records{shown})"


def _row(contrast: Contrast) -> tuple[str, ...]:
    return (
        contrast.task,
        f"{percent(contrast.a)} %",
        f"{percent(contrast.b)} %",
        signed(contrast.estimate),
        f"[{signed(contrast.low)}, {signed(contrast.high)}]",
        percent(contrast.detectable),
        contrast.verdict,
    )


def to_json(a: Side, b: Side, found: SideBySide) -> dict[str, Any]:
    """Everything, for `--json`."""

    def named(contrast: Contrast) -> dict[str, Any]:
        ends = {"low": contrast.low, "high": contrast.high, "verdict": contrast.verdict}
        return dataclasses.asdict(contrast) | ends

    judged = {"tasks": [named(task) for task in found.tasks], "average": named(found.average)}
    one, two = ({"name": side.name, "kind": side.kind, "records": len(side.records)} for side in (a, b))
    damaged = [{"record": path, "reason": reason} for path, reason in {**a.damaged, **b.damaged}.items()]
    verdict = {"verdict": found.verdict, "damaged": damaged}
    return {"a": one, "b": two, **verdict, **dataclasses.asdict(found), **judged}


if __name__ == "__main__":
    sys.exit(main())
