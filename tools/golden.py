"""The golden set: what a change of the code that is to change nothing must leave as it was.

    python -m tools.golden compare [PART ...]   build it all again and say what differs (some minutes)
    python -m tools.golden compare --quick      without rebuilt reports and the small run
    python -m tools.golden write [PART ...]     freeze what is there now, on purpose: read the diff before committing it

A part is a file of tests/golden/frozen/:

- `study-NAME`: the committed study results/reference/NAME: ids of its cells, findings, fitted laws, tables and data of
  figures. What is committed is compared, and what a report makes of the records now.
- `plan-SUITE`: `vit-bench plan --json` at the scales cpu, gpu and paper, for eight H100s that the table of devices
  describes, with no results and an empty folder of data.
- `resumed`: a small run that is killed and resumed, and the same run undisturbed. Their records and weights must be
  equal byte for byte. Only whole numbers and words are frozen, because last digits differ between processors.

Numbers are compared to 2 in 1,000, because laws are fitted by iterations that end differently on other processors. Of a
long list the count, mean, least and greatest are kept, or a hash where it holds words. Left out: versions of software,
texts of pages, pictures, and what of a plan depends on the machine (rates, notes on data sets that are absent, bytes of
memory, workers).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from bench.plan import __main__ as planning
from bench.report import build as report
from bench.store import faults
from bench.store.records import read_record
from bench.study import registry
from bench.study.cell import Cell, TaskSpec, to_json
from bench.study.suite import SCALES
from bench.suites._recipes import recipe_for
from tests.reliability.storms import leftovers, outcome, timeless, worker_options

PROJECT = Path(__file__).resolve().parent.parent
REFERENCE = PROJECT / "results" / "reference"
FROZEN = PROJECT / "tests" / "golden" / "frozen"
HARDWARE = "8xH100"
RELATIVE, ABSOLUTE = 2e-3, 1e-6
DIGITS = 5  # significant ones that are frozen
LONG = 8  # entries of a list from which it is summed up
WIDTH = 150  # columns up to which a part of a frozen file stays on one line
SHOWN = 12  # differences of a part that are printed
MACHINE = ("software", "environment", "commit")  # keys whose values are a machine's, wherever they stand

Part = dict[str, Any]


# -- values become short ones ------------------------------------------------------------------------------------------


def rounded(value: float) -> float | int | None:
    """A number as it is frozen; None where it is not finite."""
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) < 10**DIGITS):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e6 else short


def digest(words: Sequence[object]) -> str:
    """A short hash of words in their order."""
    return hashlib.sha256(json.dumps([str(word) for word in words]).encode()).hexdigest()[:12]


def numbers(values: Sequence[float]) -> dict[str, Any]:
    """What is kept of many numbers."""
    known = [value for value in values if math.isfinite(value)]
    kept: dict[str, Any] = {"n": len(known)}
    if known:
        kept |= {"mean": rounded(sum(known) / len(known)), "least": rounded(min(known)), "most": rounded(max(known))}
    return kept


def short(value: Any) -> Any:
    """A JSON value with long lists summed up, numbers rounded, and without what is a machine's."""
    if isinstance(value, Mapping):
        return {str(key): short(entry) for key, entry in value.items() if key not in MACHINE}
    if isinstance(value, (list, tuple)):
        if len(value) > LONG and all(isinstance(entry, (int, float)) for entry in value):
            return numbers(value)
        if len(value) > LONG and all(isinstance(entry, str) for entry in value):
            return {"n": len(value), "hash": digest(value)}
        return [short(entry) for entry in value]
    return rounded(value) if isinstance(value, float) else value


def table(text: str) -> Part:
    """A CSV file: its rows, and each column as numbers or as a hash of its words."""
    rows = list(csv.DictReader(io.StringIO(text)))
    columns: dict[str, Any] = {}
    for name in rows[0] if rows else ():
        values = [row[name] or "" for row in rows]
        given = [value for value in values if value]
        try:
            columns[name] = numbers([float(value) for value in given])
        except ValueError:
            columns[name] = {"n": len(given), "words": len(set(given)), "hash": digest(values)}
    return {"rows": len(rows), "columns": columns}


# -- studies -----------------------------------------------------------------------------------------------------------


def finding(found: Mapping[str, Any]) -> Part:
    """A finding, its evidence by kind: how many, and the mean size of their numbers."""
    kept = short(
        {key: value for key, value in found.items() if key not in ("evidence", "n") and value not in (None, [])}
    )
    kept["n"] = {key: count for key, count in found["n"].items() if count}
    evidence = found["evidence"]
    if evidence:
        leaves = [float(value) for _, value in flat(evidence) if isinstance(value, (int, float))]
        sizes = [math.copysign(math.log1p(abs(value)), value) for value in leaves]
        kinds = Counter(str(part.get("kind")) if isinstance(part, dict) else "value" for part in evidence)
        kept["evidence"] = dict(kinds) | {"size": rounded(sum(sizes) / max(1, len(sizes)))}
    return kept


def numbered(entries: Sequence[Any], name: Callable[[Any], str]) -> dict[str, Any]:
    """Entries by name; of equal names the second gets a 2."""
    named: dict[str, Any] = {}
    for entry in entries:
        key, count = name(entry), 2
        while key in named:
            key, count = f"{name(entry)} {count}", count + 1
        named[key] = entry
    return named


def title(found: Mapping[str, Any]) -> str:
    """The name under which a finding is frozen."""
    return " | ".join(str(found[key]) for key in ("question", "subject", "measure", "axis", "quantity"))


def study(folder: Path) -> Part:
    """What is frozen of a study's folder."""
    findings = json.loads((folder / "findings.json").read_text())
    fits = json.loads((folder / "fits.json").read_text())
    lists = {key: numbered(findings.pop(key), title) for key in ("findings", "paper")}
    law = lambda card: " | ".join(str(card.get(key)) for key in ("family", "axis", "measure"))  # noqa: E731
    return {
        "cells": sorted(path.parent.name for path in folder.glob("cells/*/record.json")),
        **{key: {name: finding(found) for name, found in named.items()} for key, named in lists.items()},
        "other": short(findings),
        "fits": short(numbered(fits, law)),
        "tables": {path.name: table(path.read_text()) for path in sorted(folder.glob("tables/*.csv"))},
        "figures": {path.name: table(path.read_text()) for path in sorted(folder.glob("figures/*.csv"))},
    }


def suite_of(folder: Path) -> str:
    """The suite of a committed study: its records say it; a study of quoted numbers is called as its source."""
    record = next(iter(sorted(folder.glob("cells/*/record.json"))), None)
    return read_record(record).suite if record else folder.name


def rebuild(folder: Path, into: Path) -> Path:
    """A report made now of a committed study's records; returns the study's new folder."""
    made = into / suite_of(folder)
    made.mkdir(parents=True)
    if (folder / "cells").is_dir():
        shutil.copytree(folder / "cells", made / "cells")
    for name in ("plan.json", "study.toml"):
        if (folder / name).exists():
            shutil.copy(folder / name, made)
    with plugins(made.name):
        report.build(made, suite=made.name)
    return made


@contextlib.contextmanager
def plugins(suite: str) -> Iterator[None]:
    """The folder of plug-ins in tools/ that holds a suite is known, as `--plugins` makes it."""
    folders = [str(path.parent.parent) for path in PROJECT.glob(f"tools/*/suites/{suite.replace('-', '_')}.py")]
    with mock.patch.dict(os.environ, {registry.PLUGINS: os.pathsep.join(folders)}):
        registry.forget()
        yield
    registry.forget()


# -- plans -------------------------------------------------------------------------------------------------------------


def plan(suite: str, scale: str) -> Part:
    """What is frozen of a suite's plan at a scale; where there is none, `absent` holds the error."""
    with tempfile.TemporaryDirectory() as folder:
        (data := Path(folder) / "data").mkdir()
        words = ["--suite", suite, "--scale", scale, "--hardware", HARDWARE, "--json"]
        words += ["--results", str(Path(folder) / "results"), "--data-root", str(data)]
        said, shown = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(shown):
            code = planning.main(words)
    if code:
        errors = [line for line in shown.getvalue().splitlines() if line.startswith("error: ")]
        if not errors:
            raise RuntimeError(f"plan {suite} at {scale} ended with {code}:\n{shown.getvalue()}")
        return {"absent": errors[0]}
    made = json.loads(said.getvalue())
    values: dict[str, Counter[str]] = {}
    for cell in made["cells"]:
        for path, value in flat(cell["cell"], deep=("recipe",)):
            values.setdefault(path, Counter())[value if isinstance(value, str) else json.dumps(value)] += 1
    return {
        "cells": {cell["name"]: planned(cell) for cell in made["cells"]},
        "fields": {path: few(counts) for path, counts in sorted(values.items())},
        "price": short({key: made["price"][key] for key in ("hardware", "devices", "ranks", "device_hours")}),
        "repeated": {part["data"]: short([part["cells"], part["least"], part["most"]]) for part in made["repeated"]},
    }


def planned(cell: Mapping[str, Any]) -> Part:
    """A planned cell. Its name holds the hash of its whole specification."""
    kept = {key: cell[key] for key in ("state", "images", "device_hours")}
    kept |= {"flops": (cell["flops"] or {}).get("dense"), "weights": (cell["needs"] or {}).get("weights")}
    return {key: short(value) for key, value in kept.items() if value is not None}


def few(counts: Mapping[str, int]) -> Any:
    """How many cells have each value of a field; a hash where there are many values."""
    return (
        dict(sorted(counts.items())) if len(counts) <= LONG else {"values": len(counts), "hash": digest(sorted(counts))}
    )


# -- a resumed run -----------------------------------------------------------------------------------------------------


CELL = Cell(
    model="ViT-pico/14",
    data="fashion-mnist",
    num_images=200,
    horizons=(0, 640, 1280),
    seed=1,
    tasks=(TaskSpec(task="fewshot", data="digits", options=(("shots", (5,)), ("draws", 2), ("test_limit", 200))),),
    recipe=recipe_for("ViT-pico/14", warmup_images=128),
)
NOT_FROZEN = {*MACHINE, "execution", "fingerprint", "detail", "correct"}
KILLED = ("training-step:17", "after-evaluation:1", "record-before-replace")


def work(store: Path, fault: str = "") -> int:
    """One worker at the cell, killed where `fault` says; returns its exit code."""
    store.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "bench.worker", *worker_options(store, [CELL])]
    variables = {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"} | ({faults.VARIABLE: fault} if fault else {})
    return subprocess.run(command, env=os.environ | variables, capture_output=True, cwd=store.parent).returncode


def resumed() -> Part:
    """Whole numbers and words of the record of a run that was killed three times. Raises: RuntimeError, where it is not
    the same, byte for byte, as an undisturbed one."""
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder) / "whole" / "test", Path(folder) / "killed" / "test"
        ends = [work(killed, fault) for fault in KILLED]
        if work(whole) or work(killed) or not all(end < 0 for end in ends):
            raise RuntimeError(f"a run failed, or was not killed where it should be: {ends}")
        if outcome(whole) != outcome(killed) or leftovers(killed):
            raise RuntimeError("a resumed run is not that which was not interrupted")
        (path,) = whole.glob("cells/*/record.json")
        weights = path.parent / "weights" / "final.safetensors"
        exact = {p: v for p, v in flat(timeless(read_record(path))) if not isinstance(v, float) and v is not None}
        return {
            "cell": path.parent.name,
            "specification": short(to_json(CELL)),
            "weights": weights.stat().st_size,
            "record": {p: v for p, v in exact.items() if not set(p.split("/")) & NOT_FROZEN},
        }


# -- comparing ---------------------------------------------------------------------------------------------------------


def flat(value: Any, path: str = "", deep: Sequence[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Every leaf of a JSON value with its path; `deep`: only these keys of the top are gone into."""
    if isinstance(value, Mapping) and (deep is None or not path or path in deep):
        for key, entry in value.items():
            yield from flat(entry, f"{path}/{key}" if path else str(key), deep)
    elif isinstance(value, (list, tuple)) and deep is None:
        for place, entry in enumerate(value):
            yield from flat(entry, f"{path}/{place}" if path else str(place), deep)
    else:
        yield path, value


def equal(ours: Any, theirs: Any) -> bool:
    """Whether two leaves are, numbers to the last digits that differ between processors."""
    if isinstance(ours, float) or isinstance(theirs, float):
        both = isinstance(ours, (int, float)) and isinstance(theirs, (int, float))
        return both and math.isclose(ours, theirs, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(ours == theirs)


def differences(now: Any, frozen: Any, path: str = "") -> list[str]:
    """What differs, one line each: what is gone or new as a whole, and values."""
    if isinstance(now, dict) and isinstance(frozen, dict):
        lines = [f"{path}/{key}: gone" for key in frozen if key not in now]
        lines += [f"{path}/{key}: new" for key in now if key not in frozen]
        return lines + [
            line for key in frozen if key in now for line in differences(now[key], frozen[key], f"{path}/{key}")
        ]
    if isinstance(now, list) and isinstance(frozen, list):
        if all(isinstance(entry, str) for entry in (*now, *frozen)):
            lines = [f"{path}: gone {entry}" for entry in frozen if entry not in now]
            lines += [f"{path}: new {entry}" for entry in now if entry not in frozen]
            return lines if lines or now == frozen else [f"{path}: another order"]
        if len(now) == len(frozen):
            pairs = enumerate(zip(now, frozen, strict=True))
            return [line for place, (a, b) in pairs for line in differences(a, b, f"{path}/{place}")]
    return [] if equal(now, frozen) else [f"{path}: was {json.dumps(frozen)}, is {json.dumps(now)}"]


def dumped(value: Any, indent: int = 0) -> str:
    """JSON with one line for whatever fits into one, so that a diff shows one change a line."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(line) + indent <= WIDTH or not isinstance(value, (dict, list)) or not value:
        return line
    inner, outer = " " * (indent + 1), " " * indent
    if isinstance(value, dict):
        rows = [f"{inner}{json.dumps(key, ensure_ascii=False)}: {dumped(v, indent + 1)}" for key, v in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{outer}}}"
    return "[\n" + ",\n".join(inner + dumped(entry, indent + 1) for entry in value) + f"\n{outer}]"


# -- parts -------------------------------------------------------------------------------------------------------------


def studies() -> dict[str, Path]:
    """Committed studies by the name of their part."""
    return {f"study-{path.parent.name}": path.parent for path in sorted(REFERENCE.glob("*/findings.json"))}


def plans() -> dict[str, str]:
    """Suites by the name of their part."""
    return {f"plan-{suite}": suite for suite in registry.names("suite")}


def parts() -> list[str]:
    """All that there are now."""
    return [*studies(), *plans(), "resumed"]


def made(part: str) -> Part:
    """A part as it is now; of a study, what is committed."""
    if part in studies():
        return study(studies()[part])
    return {scale: plan(plans()[part], scale) for scale in SCALES} if part in plans() else resumed()


def read(part: str) -> Part:
    """A part as it is frozen; empty where it is not."""
    path = FROZEN / f"{part}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _is_local(planned: Any) -> bool:
    """Whether a plan failed for want of images, which another machine may have."""
    return isinstance(planned, dict) and "training images here" in planned.get("absent", "")


def compare(part: str, *, quick: bool = False) -> list[str]:
    """What differs between a part and what is frozen of it."""
    frozen = read(part)
    if part not in parts():
        return [f"{part}: gone"]
    if not frozen:
        return [f"{part}: new"]
    if quick and part == "resumed":
        return []
    now = json.loads(json.dumps(made(part)))
    for scale in [scale for scale in frozen if _is_local(frozen[scale]) or _is_local(now.get(scale))]:
        frozen.pop(scale)
        now.pop(scale, None)
    lines = [f"{part}{line}" for line in differences(now, frozen)]
    if part in studies() and not quick:
        with tempfile.TemporaryDirectory() as folder:
            again = json.loads(json.dumps(study(rebuild(studies()[part], Path(folder)))))
        lines += [f"{part}, built again{line}" for line in differences(again, frozen)]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("write", "compare"))
    parser.add_argument("parts", nargs="*", metavar="PART", help="e.g. study-scaling-cpu (default: all)")
    parser.add_argument("--quick", action="store_true", help="compare without rebuilt reports and the small run")
    arguments = parser.parse_intermixed_args()
    before = sorted(path.stem for path in FROZEN.glob("*.json"))
    if unknown := set(arguments.parts) - {*parts(), *before}:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are: {', '.join(parts())}")
    different = 0
    for part in arguments.parts or list(dict.fromkeys((*parts(), *before))):
        if arguments.verb == "write":
            path = FROZEN / f"{part}.json"
            if part in parts():
                FROZEN.mkdir(parents=True, exist_ok=True)
                path.write_text(dumped(made(part)) + "\n")
                print(f"{part}: frozen, {path.stat().st_size / 1000:.0f} kB", flush=True)
            else:
                path.unlink()
                print(f"{part}: taken out, because it is there no more", flush=True)
            continue
        lines = compare(part, quick=arguments.quick)
        different += bool(lines)
        print("\n".join(lines[:SHOWN]) if lines else f"{part}: equal", flush=True)
        if len(lines) > SHOWN:
            print(f"{part}: and {len(lines) - SHOWN} more differences", flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
