"""Check a table of findings, one JSON file per study, or add a study to it.

Each file holds the main answers of a study with their intervals, where its records are, and a digest of these. A file
is sound where it can be read and says nothing private; where its records are on this machine (or, with --fetch, on the
hub), they must be those of the digest, and give these answers.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.core import files
from bench.core.cli import folder, parser
from bench.core.errors import EXIT_FAILED, EXIT_OK, UserError, command
from bench.core.formatting import plural

SCHEMA = 1
DEFAULT = Path("docs/findings")
NAME = re.compile(r"[a-z0-9][a-z0-9.-]*\.json")
DIGEST = re.compile(r"[0-9a-f]{64}")
DATE, VERSION = re.compile(r"20\d\d-[01]\d-[0-3]\d"), re.compile(r"\d+\.\d+[\w.+-]*")
OF_RECORDS = ("suite", "runs", "hardware", "date")  # fields that follow from the records, as the answers do
ADDRESS = re.compile(r"\w://|www\.", re.IGNORECASE)
TEXTS = ("title", "suite", "records", "digest", "hardware", "date", "version")
ANSWER = {"question": str, "subject": list, "verdict": str, "sentence": str}
NUMBERS = ("estimate", "low", "high")
MAX_ANSWERS, MAX_LETTERS = 20, 300
TOLERANCE = 2e-3  # relative difference that is accepted: fits end slightly differently on other processors
PAGE = """\
# Findings

Studies that were run with this project, one file of `docs/findings/` each: main answers with their intervals, and
where the records are. Yours is welcome, whatever it says: publish the records, add the file, check it, and open a pull
request.

```
vit-bench report --suite scaling --to hub:my-lab/scaling
vit-bench findings --add results/scaling --records hub:my-lab/scaling --as my-lab-scaling
vit-bench findings --fetch --write docs/findings.md
```

The check reads every file, and the records that it names: they must be those of its digest, of its runs, day and
hardware, and give its answers, of which its title is one. What is wrong with a file is said in a line.
"""
EXAMPLES = """\
examples:
  vit-bench findings                                        check docs/findings/*.json, and print the table
  vit-bench findings --add results/scaling --records hub:my-lab/scaling --as my-lab-scaling
                                                            write docs/findings/my-lab-scaling.json, for a pull request
  vit-bench findings --fetch                                check against records on the hub, too
  vit-bench findings --write docs/findings.md               write the page of the table
exit codes: 0; 3 if a file is not sound; 2 for a mistake
"""


@command
def main(argv: list[str] | None = None) -> int:
    p = parser(
        "vit-bench findings",
        (__doc__ or "").strip(),
        EXAMPLES,
        effects=lambda args: {"idle": {"without --add": not args.add and "records name"}},
    )
    p.add_argument("folder", nargs="?", type=folder, default=DEFAULT, help=f"of the files (default: {DEFAULT})")
    p.add_argument("--add", type=folder, metavar="STUDY", help="a study's folder, whose report was built")
    p.add_argument("--records", metavar="WHERE", help="with --add: hub:ORG/NAME, or a folder of this repository")
    p.add_argument("--as", dest="name", metavar="NAME", help="with --add: what the file is called")
    p.add_argument("--fetch", action="store_true", help="fetch records that are on the hub, and check against them")
    p.add_argument("--write", type=folder, metavar="FILE.md", help="write a page with the table")
    args = p.parse_args(argv)
    if args.add:
        path = add(args.add, args.folder, records=args.records, name=args.name)
        where = "" if args.folder == DEFAULT else f" {args.folder}"
        said = f"{path} was written. Check it: vit-bench findings{where}"
        print(json.dumps({"file": str(path)}) if args.json else said)
        return EXIT_OK
    from bench.report import hub

    entries, wrong = checked(args.folder, fetch=args.fetch)
    made, page = table(entries), args.folder.with_suffix(".md")
    text = f"{PAGE}\n{made}".encode()
    if args.write:
        files.write_bytes(args.write, text)
    if not wrong and page.is_file() and page.read_bytes() != text:
        wrong[page.name] = f"it is not the page of these files: vit-bench findings --write {page}"
    unread = 0 if args.fetch else sum(hub.accepts(entry["records"]) for entry in entries.values())
    if args.json:
        print(json.dumps({"studies": len(entries), "wrong": wrong, "unread": unread}))
    else:
        print("\n".join([made, *(f"{name}: {why}" for name, why in wrong.items())]))
        print(f"{plural(len(entries), 'sound file')}, {len(wrong)} not sound.")
        if unread:
            print(f"The records of {unread:,} on the hub were not read: --fetch reads them.")
    return EXIT_FAILED if wrong else EXIT_OK


def add(study: Path, target: Path, *, records: str | None, name: str | None) -> Path:
    """Write a study's entry of the table of findings, a JSON file, into the folder `target`; return the file's path.

    Args:
        study: the study's folder.
        records: where its records are published: "hub:ORG/NAME", or a folder of this repository.
        name: name of the file without its ending; None: that of the study's folder.

    Raises:
        UserError: the study has no report, `records` is missing, the name is not allowed, or the entry would publish
            something private.
    """
    from bench.report import private

    if not records:
        raise UserError("Where are the records?", "Give --records hub:ORG/NAME (report --to hub:… puts them there).")
    file = f"{name or study.name}.json"
    if not NAME.fullmatch(file):
        raise UserError(f"{file!r} is no name of a file here.", "Lower-case letters, digits, - and . (--as NAME).")
    entry = entry_of(study, records=records)
    data = (json.dumps(entry, indent=1, ensure_ascii=False) + "\n").encode()
    if found := private.of_this_machine([study]).found_in(data.decode(), prose=True):
        raise UserError(f"{file} would publish {found}. Nothing was written.", "Name models and images without it.")
    files.make_directory(target)
    files.write_bytes(target / file, data)
    return target / file


def entry_of(study: Path, *, records: str) -> dict[str, Any]:
    """Return a study's entry of the table of findings: the main answers of its last report, where its records are
    published (`records`), and a digest of these.

    Raises:
        UserError: the study has no records, or no report.
    """
    from bench import __version__
    from bench.analysis import saved_findings, study_data
    from bench.report.title import statement
    from bench.store import index

    suite = index.suite_of(study)
    there = study_data.load(study, suite=suite).records
    found = saved_findings.read(study)
    if not there or not found:
        raise UserError(f"{study} has no {'report' if there else 'records'}.", "Run the suite, then vit-bench report.")
    answers = [
        {
            "question": one.question,
            "subject": list(one.subject),
            "verdict": str(one.verdict.value),
            "sentence": str(statement(one))[:MAX_LETTERS],
            **{key: _number(getattr(one, key)) for key in NUMBERS},
        }
        for one in found
        if one.main
    ][:MAX_ANSWERS]
    decided = [answer for answer in answers if answer["verdict"] == "yes"] or answers
    hardware = {record.environment.accelerator or record.environment.cpu or "unknown" for record in there}
    return {
        "schema": SCHEMA,
        "title": decided[0]["sentence"],
        "suite": suite,
        "records": records,
        "runs": len(there),
        "digest": digest_of(study),
        "hardware": ", ".join(sorted(hardware)),
        "date": max(record.environment.time_end or "" for record in there)[:10],
        "version": __version__,
        "answers": answers,
    }


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def digest_of(study: Path) -> str:
    """Return a digest (SHA-256, hexadecimal) of a study's records. It covers each run's name, status and scores, which
    publishing does not change."""
    from bench.store.study import Study
    from bench.study.cell import to_json

    lines = []
    for cell in Study(study).directories():
        if (record := cell.read_record()) is not None:
            lines.append(files.canonical([record.directory, record.status, _scores(to_json(record.horizons))]))
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _scores(horizons: Any) -> Any:
    """Return [images seen, scores] of each horizon (budget at which a run was evaluated). Details of scores are left
    out, since publishing leaves out the photos of a user's own set. `horizons`: those of a record, as JSON types."""
    keys = ("task", "data", "metric", "value", "shots", "draw")
    return [[h["images_seen"], [[score[key] for key in keys] for score in h["scores"]]] for h in horizons]


def checked(place: Path, *, fetch: bool) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Read and check all entries (JSON files) in the folder `place`. Return (file name -> entry, for sound entries;
    file name -> what is wrong, for the others). `fetch`: whether to check against records on the hub too.

    Raises:
        UserError: the folder does not exist.
    """
    if not place.is_dir():
        raise UserError(f"There is no folder {place}.", "vit-bench findings --add makes it.")
    entries: dict[str, dict[str, Any]] = {}
    wrong: dict[str, str] = {}
    seen: dict[str, str] = {}
    for path in sorted(place.glob("*.json")):
        try:
            entry = read(path)
            if entry["digest"] in seen:
                raise ValueError(f"it is of the same records as {seen[entry['digest']]}")
            compare_with_records(entry, fetch=fetch)
        except (ValueError, UserError, OSError, RecursionError) as error:
            wrong[path.name] = " ".join(str(error).split())
            continue
        entries[path.name] = entry
        seen[entry["digest"]] = path.name
    return entries, wrong


def read(path: Path) -> dict[str, Any]:
    """Read an entry of the table of findings and check its form, but not against its records.

    Raises:
        ValueError: the entry is not sound; the message says why.
    """
    from bench.report import private

    if not NAME.fullmatch(path.name):
        raise ValueError("its name must be of lower-case letters, digits, - and .")
    try:
        text = files.read_whole(path).decode()
        entry = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON in UTF-8: {error}") from error
    if not isinstance(entry, dict) or entry.get("schema") != SCHEMA:
        raise ValueError(f"its schema is not {SCHEMA}")
    if strange := set(entry) - {"schema", "runs", "answers", *TEXTS}:
        raise ValueError(f"unknown field {sorted(strange)[0]!r}")
    for key in TEXTS:
        if not isinstance(entry.get(key), str) or not 0 < len(entry[key]) <= MAX_LETTERS:
            raise ValueError(f"{key} must be a text of 1 to {MAX_LETTERS} letters")
    for key, pattern, as_in in (("date", DATE, "2026-11-28"), ("version", VERSION, "0.2.0")):
        if not pattern.fullmatch(entry[key]):
            raise ValueError(f"{key} must be as in {as_in}")
    if not DIGEST.fullmatch(entry["digest"]):
        raise ValueError("digest must be 64 hexadecimal digits")
    if type(entry.get("runs")) is not int or entry["runs"] < 1:
        raise ValueError("runs must be a whole number of at least 1")
    answers = entry.get("answers")
    if not isinstance(answers, list) or not 0 < len(answers) <= MAX_ANSWERS:
        raise ValueError(f"answers must be a list of 1 to {MAX_ANSWERS}")
    for number, answer in enumerate(answers, start=1):
        _check_answer(answer, f"answer {number}")
    if found := private.PrivateWords().found_in(text, prose=False):
        raise ValueError(f"it holds {found}")
    if address := ADDRESS.search(text):
        raise ValueError(f"it holds an address ({address[0]}…), where records are named as hub:ORG/NAME")
    if entry["title"] not in [answer["sentence"] for answer in answers]:
        raise ValueError("its title must be the sentence of one of its answers")
    return entry


def _check_answer(answer: Any, which: str) -> None:
    if not isinstance(answer, dict) or set(answer) != {*ANSWER, *NUMBERS}:
        raise ValueError(f"{which} must have {', '.join((*ANSWER, *NUMBERS))}, and nothing else")
    for key, kind in ANSWER.items():
        if not isinstance(answer[key], kind) or (kind is str and len(answer[key]) > MAX_LETTERS):
            raise ValueError(f"{which}: {key} must be a {'list' if kind is list else 'text'}")
    if not all(isinstance(one, str) and len(one) <= MAX_LETTERS for one in answer["subject"]):
        raise ValueError(f"{which}: subject must be a list of texts")
    for key in NUMBERS:
        value = answer[key]
        if value is not None and (type(value) not in (int, float) or not math.isfinite(value)):
            raise ValueError(f"{which}: {key} must be a number or null")
    estimate, low, high = (answer[key] for key in NUMBERS)
    if None not in (low, high) and (low > high or (estimate is not None and not low <= estimate <= high)):
        raise ValueError(f"{which}: {estimate} is not within [{low}, {high}]")


def compare_with_records(entry: Mapping[str, Any], *, fetch: bool) -> None:
    """Check that the records that an entry names have the entry's digest and give its answers. Records on the hub are
    read only if `fetch`; otherwise they are not checked.

    Raises:
        ValueError: the records have another digest, or give other answers.
        UserError: the records cannot be fetched.
    """
    from bench.report import hub

    where = entry["records"]
    if hub.accepts(where):
        hub.repository(where)
        if not fetch:
            return
        study = hub.fetch(where, files=[*hub.READ, "findings.json"])
    else:
        study = Path(where)
        if study.is_absolute() or ".." in study.parts or not study.is_dir():
            raise ValueError(f"records must be hub:ORG/NAME or a folder of this repository, not {where}")
    there = entry_of(study, records=where)
    if there["digest"] != entry["digest"]:
        raise ValueError(f"the records in {where} are not those of its digest")
    for key in OF_RECORDS:
        if there[key] != entry[key]:
            raise ValueError(f"{key}: the records say {there[key]!r}, and it says {entry[key]!r}")
    if len(there["answers"]) != len(entry["answers"]):
        raise ValueError(f"{where} has {len(there['answers'])} main answers, and it has {len(entry['answers'])}")
    for ours, theirs in zip(entry["answers"], there["answers"], strict=True):
        for key in (*ANSWER, *NUMBERS):
            a, b = ours[key], theirs[key]
            same = math.isclose(a, b, rel_tol=TOLERANCE) if key in NUMBERS and None not in (a, b) else a == b
            if not same:
                raise ValueError(f"{theirs['question']}, {key}: the records say {b!r}, and it says {a!r}")


def _as_text(cell: str) -> str:
    """Return a text escaped for a cell of a Markdown table, so that it is shown literally, without markup or links."""
    for mark, written in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("](", "] ("), ("![", "! ["), ("\n", " ")):
        cell = cell.replace(mark, written)
    return cell


def table(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the entries (by file name) as a Markdown table, newest first."""
    lines = ["| finding | suite, runs | on | date | records |", "|---|---|---|---|---|"]
    for entry in sorted(entries.values(), key=lambda one: one["date"], reverse=True):
        cells: Sequence[str] = (
            entry["title"],
            f"{entry['suite']}, {entry['runs']}",
            entry["hardware"],
            entry["date"],
            f"`{entry['records']}`",
        )
        lines.append("| " + " | ".join(map(_as_text, cells)) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
