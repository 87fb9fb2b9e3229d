"""Builds a study's tables, figures and report from its records alone. Needs no torch; equal records give identical
files."""

from __future__ import annotations

import dataclasses
import json
import textwrap
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core.errors import UserError
from bench.report.style import PAGE, Style
from bench.study import registry
from bench.study.names import DataName

if TYPE_CHECKING:
    from rich.console import Console

    from bench.analysis.evidence import Evidence
    from bench.analysis.findings import Findings
    from bench.analysis.study_data import Records
    from bench.report.figures.figure import RenderedFigure
    from bench.report.next_step import NextStep
    from bench.report.text import ConsoleRow
    from bench.report.title import StudyTitle

SWEEP_QUESTION = "best-learning-rate"  # asked of any suite, where a sweep was made
DIGITS = 6  # significant digits of numbers in findings.json; further digits differ between processors
CONSOLE_ROWS = 10  # answers that `say` prints, unless it is asked for all
CONSOLE_WIDTH = 100  # columns of a console from which on a trend is printed with its ends
ANSWER = "answer"  # name of the figure that is drawn where no other shows what the title says
REHEARSAL = "Rehearsal: these numbers mean nothing."  # begins every title of a rehearsal's report
CHECK = "check"  # PURPOSE of a suite that only checks the pipeline


@dataclass(frozen=True, kw_only=True)
class ReportPaths:
    """The files that a report was written to, and what it found.

    Attributes:
        html, markdown: paths of report.html and report.md.
        findings_json: path of findings.json, which holds `findings`.
        tables, figures: paths of the files in tables/ and figures/.
        findings: answers, claims, validity checks, cost and scope of the study.
        title: the study's title.
        next_step: what the report recommends to do next.
        check: how the check of the pipeline ended, in words, for a suite that only checks it; "" for other suites.
        works: whether that check passed; True for other suites.
        broken: (title, error) of each figure whose file raised an exception.
    """

    html: Path
    markdown: Path
    findings_json: Path
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    findings: Findings
    title: str
    next_step: NextStep
    check: str = ""
    works: bool = True
    broken: tuple[tuple[str, str], ...] = ()


def build(
    suite_directory: Path,
    *,
    suite: str,
    reference: str | None = None,
    targets: Sequence[float] | None = None,
    style: Style = PAGE,
) -> ReportPaths:
    """Write `suite_directory`/{report.html, report.md, findings.json, fits.json, tables/, figures/}, report.html last.
    Tables and figures of an earlier report that are not made any more are removed; files that no report wrote stay.

    Args:
        suite_directory: `results/<suite>`, with records under cells/.
        suite: the suite's name. A suite file of that name says which tasks are headline tasks (those whose mean is a
            model's score) and which figures to draw; a sweep of learning rates adds its own figure. Without such a
            file, all tasks are headline tasks and every figure is tried. The name of a quoted source ("paper",
            "published") gives a report on its numbers.
        reference: name of a quoted source whose points are drawn under the measured ones; None: no such points.
        targets: accuracies in 0..1; the report says what it takes to reach each. None: those of the study file in the
            folder.
        style: sizes of figures and of their text.

    Raises:
        UserError: there are no results, a record is from a newer version, or the disk cannot be written.
    """
    from bench.analysis import questions, saved_findings
    from bench.core import files
    from bench.report import fits, page, tables
    from bench.store import grid
    from bench.store.study import INSPECTED, Study

    Study(suite_directory).check()
    quoted = registry.load("quoted source", suite) if suite in registry.names("quoted source") else None
    evidence, by_figure = quoted.read() if quoted else measured(suite_directory, suite, reference)
    wanted = grid.targets(suite_directory) if targets is None else tuple(targets)
    at = grid.forecast_at(suite_directory)
    if wanted or at is not None:  # figures mark what the answers say
        evidence, *copies = (
            dataclasses.replace(one, targets=wanted, forecast_at=at) for one in (evidence, *by_figure.values())
        )
        by_figure = dict(zip(by_figure, copies, strict=True))
    asked = questions.asked(_questions(suite, evidence))
    findings = questions.find(evidence, [question.name for question in asked])
    answered = {finding.question for finding in findings.findings}
    own = (name for question in asked if question.name in answered for name in question.figures)
    by_figure |= {name: evidence for name in own if name not in by_figure}
    mark = REHEARSAL if evidence.records.rehearsal else ""
    figures, not_drawn, broken = _draw(by_figure, style, mark=mark)
    if reference and evidence.reference is None:
        not_drawn.append(("Published points", "none is of a whole set and an image size that this study trained with"))
    title = None if _purpose(suite) == CHECK else _title(findings, evidence, figures)
    if title and not title.figure and (answer := _answer(findings, title, evidence, style, mark=mark)):
        figures, title = [answer, *figures], dataclasses.replace(title, figure=answer.name)
    if title and mark:
        title = dataclasses.replace(title, text=f"{mark} {title.text}")
    if title and title.figure in by_figure:
        shown_by = by_figure[title.figure]
        figures = [_titled(f, title, shown_by, style, mark=mark) if f.name == title.figure else f for f in figures]
    looked_into: list[RenderedFigure] = []
    if (suite_directory / INSPECTED).is_dir():  # by `bench.report --cell`
        from bench.report import inspections

        looked_into = inspections.read(suite_directory)
    links, pages = quoted.page(suite_directory) if quoted and quoted.page else ({}, dict[Path, bytes]())
    made = tables.of_questions(evidence, asked) if links else tables.build(evidence, asked)
    if mark:
        made = tuple(dataclasses.replace(table, title=f"{mark} {table.title}") for table in made)
    shown = page.content(
        evidence,
        findings,
        figures=[*figures, *looked_into],
        not_drawn=[*broken, *not_drawn],
        tables=made,
        check=_purpose(suite) == CHECK,
        chosen=title,
        traces=[path.relative_to(suite_directory) for path in Study(suite_directory).traces()],
        asked=grid.STUDY_FILE if grid.says_more(suite_directory) else "",
        links=links,
        mark=mark,
    )
    table_folder, figure_folder = suite_directory / "tables", suite_directory / "figures"
    for table in made:
        pages[table_folder / f"{table.name}.csv"] = table.csv().encode()
        pages[table_folder / f"{table.name}.md"] = table.markdown().encode()
        pages[table_folder / f"{table.name}.tex"] = table.latex().encode()
    if not links:
        pages[table_folder / "scores.csv"] = tables.scores_csv(evidence).encode()
    for figure in figures:
        pages |= figure.files(figure_folder)
    about = {"schema": saved_findings.SCHEMA, "suite": evidence.suite, "question": evidence.question}
    about |= {"rehearsal": mark} if mark else {}
    pages[suite_directory / saved_findings.NAME] = files.dump_json(
        fits.rounded(about | dataclasses.asdict(findings), DIGITS)
    )
    pages[suite_directory / "fits.json"] = files.dump_json(fits.cards(evidence))
    pages[suite_directory / "report.md"] = page.report_md(shown).encode()
    pages[suite_directory / "report.html"] = page.html(shown).encode()
    _replace(suite_directory, (table_folder, figure_folder), pages)
    return ReportPaths(
        title=shown["title"],
        next_step=shown["next"],
        html=suite_directory / "report.html",
        markdown=suite_directory / "report.md",
        check=shown["check"],
        works=shown["works"] or not shown["check"],
        findings_json=suite_directory / saved_findings.NAME,
        findings=findings,
        tables=tuple(p for p in pages if p.parent == table_folder),
        figures=tuple(p for p in pages if p.parent == figure_folder),
        broken=tuple(broken),
    )


def _title(findings: Findings, evidence: Evidence, figures: Sequence[RenderedFigure]) -> StudyTitle | None:
    """Return the study's title, an answer to the question that the study was made for; None if no question was
    asked."""
    from bench.report.title import title_of

    return title_of(findings, figures=[figure.name for figure in figures], own=evidence.own_question)


def _replace(suite_directory: Path, folders: Sequence[Path], pages: Mapping[Path, bytes]) -> None:
    """Write a report's files in their order, and then remove those files of an earlier report that are not written
    again.

    Args:
        folders: the report's folders of tables and figures. An earlier report's files in them are removed; other files
            stay.
        pages: path -> content of each file.
    """
    from bench.core import files
    from bench.store import built, faults

    for folder in (suite_directory, *folders):
        files.remove_leftovers(files.make_directory(folder))
    before = built.read(suite_directory)
    now = {f"{path.parent.name}/{path.name}" for path in pages if path.parent in folders}
    built.write(suite_directory, before | now)  # whenever this stops, the next build knows
    for path, data in pages.items():
        files.write_bytes(path, data)
        faults.reach("during-report")
    for name in before - now:
        (suite_directory / name).unlink(missing_ok=True)
    built.write(suite_directory, now)


def measured(directory: Path, suite: str, reference: str | None) -> tuple[Evidence, dict[str, Evidence]]:
    """Return the evidence (records, arranged for analysis) of a study, and name of a figure -> evidence to draw it
    from. The figures are those that the suite names or, without a suite file, all that there are.

    Args:
        directory: folder of the study.
        suite: name of the suite that it belongs to.
        reference: name of a quoted source whose points are drawn under the measured ones; None: no such points.
    """
    from bench.analysis import lr_sweep, study_data

    design = _design(suite)
    records = study_data.load(directory, suite=suite, rehearsals=True)
    evidence = lr_sweep.of_chosen(
        records,
        headline=design.headline if design else (),
        far=design.far if design else (),
        question=design.question if design else "",
        data_kinds=_data_kinds(records),
    )
    if design:
        evidence = dataclasses.replace(evidence, own_question=design.title.replace("-", " "))
    theirs: dict[str, Evidence] = {}
    if reference:
        quoted = registry.load("quoted source", reference)
        evidence = dataclasses.replace(evidence, reference=quoted.beside(evidence))
        theirs = quoted.read()[1]
    every = sorted(registry.names("figure"), key=lambda name: name != "frontier")  # it answers most at a glance
    figures = every if design is None else design.figures
    by_figure = dict.fromkeys(figures, evidence)
    if evidence.reference is not None:  # each figure beside the table that the source draws it from
        by_figure |= {name: dataclasses.replace(evidence, reference=theirs[name]) for name in figures if name in theirs}
    return evidence, by_figure


def _design(suite: str) -> Any:
    """Return the `Suite` of this name; None where no suite has it, as for a study under a name of its own."""
    return registry.load("suite", suite) if suite in registry.names("suite") else None


def _purpose(suite: str) -> str:
    design = _design(suite)
    return str(design.purpose) if design else ""


def _questions(suite: str, evidence: Evidence) -> list[str] | None:
    """Return the names of the questions to ask: those that the suite names, the question on learning rates if these
    were swept, and those of plug-ins. None (all questions there are) if there is no suite file, or if it names no
    questions."""
    from bench.analysis import lr_sweep

    design = _design(suite)
    if design is None or design.questions is None:
        return None
    swept = (SWEEP_QUESTION,) if lr_sweep.sweeps(evidence) else ()
    return list(dict.fromkeys((*design.questions, *swept, *registry.plugged_in("question"))))


def to_json(paths: ReportPaths) -> dict[str, Any]:
    """Return a report's paths and findings as JSON types, for `--json`."""
    listed = {name: [str(p) for p in getattr(paths, name)] for name in ("tables", "figures")}
    single = {name: str(getattr(paths, name)) for name in ("html", "markdown", "findings_json")}
    return {
        **single,
        **listed,
        "headline": paths.title,
        "next": dataclasses.asdict(paths.next_step),
        "broken": dict(paths.broken),
        "findings": json.loads(paths.findings_json.read_text()),
    }


def say(paths: ReportPaths, console: Console, verbose: bool = False) -> None:
    """Print what a report found, in a few lines or (`verbose`) with every answer, its reasons and every check; then the
    next step, and the path of the page."""
    from rich.text import Text

    from bench.analysis.table import clean
    from bench.core.formatting import plural
    from bench.report import caveats, text

    def line(words: str, style: str = "") -> None:
        console.print(Text(clean(words), style=style), highlight=False)

    answers = text.answers(paths.findings)
    rows, left = text.console_rows(answers, limit=CONSOLE_ROWS)
    if verbose:
        rows = [text.row_of(a) for a in answers]
    console.print(Text(clean(paths.title), style="bold"), soft_wrap=True, highlight=False)
    if paths.check:
        rows, left = rows if verbose else [], []
    if rows:
        _say_rows(rows, console, short=console.width < CONSOLE_WIDTH and not verbose)
    warnings, notes = caveats.warnings(paths.findings)
    if verbose:
        for a in answers:
            line(f"{a.label}, {a.subject}: {a.text}" if a.text else "")
        for words in (*warnings, *notes, *caveats.limits(paths.findings), caveats.shared_facts(paths.findings)):
            line(f"- {words}")
        line("" if paths.findings.published else caveats.cost(paths.findings.cost))
    elif left:
        for words in textwrap.wrap(f"Not settled: {' '.join(left)}", console.width):
            line(words, "dim")
    if not verbose and warnings and not paths.check:
        line(f"{plural(len(warnings), 'warning')} about validity: in the report, or with --verbose.", "yellow")
    step = paths.next_step
    for words in textwrap.wrap(f"Next: {step.text} ({step.price}):", console.width):
        line(words)
    console.print(Text(f"  {step.command}"), soft_wrap=True, highlight=False)
    for title, error in paths.broken:
        line(f"Not drawn: {title} ({error}).", "red")
    console.print(Text(f"Report: {paths.html}"), soft_wrap=True)


def _say_rows(rows: Sequence[ConsoleRow], console: Console, *, short: bool) -> None:
    """Print answers as a table. `short`: print trends without the numbers at their ends."""
    from rich.table import Table
    from rich.text import Text

    from bench.analysis.table import clean

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for heading in ("Question", "Subject", "Number [interval]", "Answer"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        cells = (row.label, row.subjects, row.shown.short if short else row.shown.text)
        table.add_row(
            *(Text(clean(cell)) for cell in cells),
            Text(clean(row.verdict), style="dim" if row.tone == "unsure" else ""),
        )
    with console.capture() as captured:
        console.print(table)
    for printed in captured.get().splitlines():  # cells are padded: a log has no use for trailing blanks
        padded = Text.from_ansi(printed)
        padded.rstrip()
        console.print(padded, soft_wrap=True, highlight=False)


def _draw(
    wanted: Mapping[str, Evidence], style: Style, *, mark: str = ""
) -> tuple[list[RenderedFigure], list[tuple[str, str]], list[tuple[str, str]]]:
    """Draw figures. Return (the figures; title and reason of each figure for which the evidence holds nothing; title
    and error of each figure whose file raised an exception). No exception in one figure's file stops the report.

    Args:
        wanted: name of a figure -> the evidence to draw it from.
        mark: words before every title and across every picture; "" for none.
    """
    from bench.report.figures.figure import NothingToDraw, draw

    drawn: list[RenderedFigure] = []
    missing, broken = [], []
    for name, evidence in wanted.items():
        title = name
        try:
            figure = registry.load("figure", name)
            title = figure.title
            drawn += draw(name, figure, evidence, style, mark=mark)
        except NothingToDraw as reason:
            missing.append((title, str(reason)))
        except UserError as error:
            broken.append((title, error.what.rstrip(".")))
        except Exception as error:
            broken.append((title, f"{type(error).__name__}: {error}{_place(error, name)}"))
    return drawn, missing, broken


def _titled(
    figure: RenderedFigure, title: StudyTitle, evidence: Evidence, style: Style, *, mark: str
) -> RenderedFigure:
    """Return `figure` with a second version of its picture, under the study's title (`RenderedFigure.titled`). Files
    get this version, since they are also looked at where no page shows the title. `mark`: words across the picture; ""
    for none."""
    from bench.report.figures.figure import draw

    drawn = registry.load("figure", figure.name)
    under, *_ = draw(figure.name, drawn, evidence, style, says=title.caption, mark=mark)
    return dataclasses.replace(figure, titled=under)


def _answer(
    findings: Findings, title: StudyTitle, evidence: Evidence, style: Style, *, mark: str = ""
) -> RenderedFigure | None:
    """Return a picture of the finding that titles a study, for a study without a figure that shows it; None where that
    finding cannot be drawn. `mark`: words across the picture; "" for none."""
    from bench.report.figures import _answer, _style
    from bench.report.figures.figure import NothingToDraw, render

    chosen = findings.findings[title.finding]
    alike = [f for f in findings.findings if f is not chosen and f.question == chosen.question and f.main]
    try:
        with _style.drawn_as(style):
            drawing = _answer.draw([chosen, *alike], [series.family for series in evidence.series])
    except NothingToDraw:
        return None
    return render(ANSWER, title.text, drawing, mark=mark)[0]


def _place(error: Exception, figure: str) -> str:
    """Return the line of a figure's file in which an exception was raised, or through which it passed last, as ",
    widths.py, line 3"; "" if it passed no file of the name that `figure` has, in whatever folder."""
    file = f"{figure.replace('-', '_')}.py"
    passed = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == file]
    return f", {file}, line {passed[-1]}" if passed else ""


def _data_kinds(records: Records) -> dict[str, str]:
    """Return data set -> kind of its images ("photographs", "handwriting", "rendered"), for those data sets of the
    records whose file can be imported."""
    scored = (score.data for record in records.records for horizon in record.horizons for score in horizon.scores)
    used = {DataName.parse(name).base for name in (*scored, *(record.cell.data for record in records.records))}
    kinds = {}
    for name in sorted(used & set(registry.names("data set"))):
        try:
            kinds[name] = str(registry.load("data set", name).kind)
        except (ImportError, AttributeError, UserError):
            continue
    return kinds
