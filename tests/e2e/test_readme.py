"""Commands in README and the documentation work: on a finished study where one is needed."""

import itertools
import re
import shlex
import shutil
from pathlib import Path

import pytest

import bench.api
from bench import __main__ as script
from bench.core import errors
from bench.core.cli import PARSER_ALONE, ParserMade, parser
from bench.core.errors import EXIT_FOUND, EXIT_OK
from bench.data import pack
from bench.plan.preflight import resolve_scale
from bench.plan.sizes import DataSizes
from bench.study import registry
from bench.study.options import RUN, StudyOptions, add_options
from bench.trackers import tracker as trackers
from tests.conftest import PROJECT
from tests.plan.making import grid_asked

pytestmark = pytest.mark.gate

# -- what README says to type works: commands run on a finished study, studies are planned, the Python lines executed --


README = (PROJECT / "README.md").read_text()
PAGES = sorted((PROJECT / "docs").glob("*.md"))
COMMANDS = tuple(
    dict.fromkeys(
        found.strip()
        for text in (README, *(page.read_text() for page in PAGES))
        for found in re.findall(r"(?:^|\| `)vit-bench ([^`\n]+?)(?:`|   |\n|$)", text, re.MULTILINE)
    )
)
STUDIES = ("run ", "plan ")  # planned
REST = (  # of a checkpoint, a table, a network or minutes that are not here
    *("probe ", "evaluate ", "doctor", "fit zeroshot_results.csv "),
    *("ladder ", "findings --fetch "),
    *(f"fit {logs}" for logs in ("runs/", "wandb", "export.csv", "mlruns/", "logs/")),
)


def block(name: str) -> str:
    """The code between two markers of README or of the page about study files and Python, without the fence."""
    pages = README + (PROJECT / "docs/api.md").read_text()
    return re.search(rf"<!-- {name}:begin -->\n```\w*\n(.*?)```", pages, re.DOTALL)[1]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder in which the main study is done, as README's reader has it."""
    monkeypatch.chdir(tmp_path)
    kept = PROJECT / "results/reference/scaling-cpu"
    for folder in ("results", "before"):
        for cell in kept.glob("cells/*_s0-*"):
            if "@" not in cell.name and cell.name.count("-1000_") + cell.name.count("-300") == 0:
                shutil.copytree(cell, tmp_path / folder / "scaling" / "cells" / cell.name)
    shutil.copytree(kept, tmp_path / "results/reference/scaling-cpu")
    shutil.copytree(PROJECT / "docs/findings", tmp_path / "docs/findings")
    (tmp_path / "study.toml").write_text(block("study"))
    lines = ["family,compute,images,error"]
    lines += [
        f"{family},{x:g},{x / 1e9:g},{a * x**-0.1:.6f}"
        for family, a in (("ViT", 9), ("ResNet", 8))
        for x in (1e12, 3e12, 1e13, 3e13, 1e14, 3e14, 1e15)
    ]
    (tmp_path / "runs.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_there_are_commands():
    named = {command.split()[0] for command in COMMANDS}
    assert {"run", "plan", "compare", "report", "fit"} <= named and len(COMMANDS) > 12


@pytest.mark.parametrize(
    "command",
    [command for command in COMMANDS if not command.startswith((*STUDIES, *REST)) and "…" not in command],
)
def test_a_command_does_what_it_says(command, home, capsys):
    verb, *words = shlex.split(command)
    if any(own in command for own in ("folder:", "photos/", "my_model.py")):
        pytest.skip("a folder or a file of the reader's own")
    if "hub:" in command:
        pytest.skip("the hub, which tests/report/test_hub.py stands in for")
    if "--to" in words and words[-1] != "csv" and not trackers.installed(words[words.index("--to") + 1]):
        pytest.skip("this tracker is not installed")
    if "--design" in words:
        designed(home / "runs.csv")
    path = script.verbs()[verb]
    module = script.imported(path)
    assert module.main(words) in (EXIT_OK, EXIT_FOUND), capsys.readouterr().err
    assert capsys.readouterr().out


def designed(path: Path) -> None:
    """Runs of two families whose sizes, images, compute, hours, losses and errors follow a law."""
    lines = ["family,N,D,flops,gpu_hours,loss,error"]
    for family, per_size, floor in (("ViT", 10, 1.7), ("ResNet", 40, 1.6)):
        for size in (1e7, 2e7, 5e7, 1e8, 2e8, 5e8, 1e9):
            images = per_size * size
            loss = floor + 400 / size**0.34 + 410 / images**0.28
            compute = 6 * size * images
            error = loss / 20 * (1 + 0.01 * (-1) ** int(size / 1e7))
            lines.append(f"{family},{size:g},{images:g},{compute:g},{compute / 1e18:g},{loss:g},{error:g}")
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith(STUDIES)])
def test_a_study_is_what_its_command_asks_for(command, home, race):
    if any(own in command for own in ("folder:", "photos/", "my_model.py")):
        pytest.skip("a folder or a file of the reader's own")
    p = parser("test", "", "")
    add_options(p, RUN)
    p.add_argument("--write-cells")  # of bench.plan alone
    asked = StudyOptions.parsed(p.parse_args(shlex.split(command)[1:]))
    asked = asked.changed(scale=resolve_scale(asked.what.scale, "cpu"))
    assert grid_asked(asked, DataSizes(published=asked.what.scale == "paper")).chosen


def commands_in(text: str):
    """(whether it begins a line or a cell of a table, verb, its words) of every command, up to a remark or a pipe."""
    starts = r"(^ *|^\| `|`)(?:vit-bench |(?:[\w./]*python |torchrun [^`\n]*)-m bench\.)(\w+)\b([^`\n]*)"
    for start, verb, rest in re.findall(starts, re.sub(r"\s*\\\n\s*", " ", text), re.MULTILINE):
        if verb in script.verbs() and "…" not in rest:
            words = shlex.split(rest.partition("  ")[0], comments=True)
            yield start != "`", verb, [*itertools.takewhile(lambda word: word not in ("|", "||", "&&", "&"), words)]


def parser_of(main):
    with pytest.raises(ParserMade) as made:
        main.__wrapped__(PARSER_ALONE)
    return made.value.args[0]


@pytest.mark.parametrize("source", ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in PAGES), "--help"])
def test_every_command_line_parses(source, tmp_path, monkeypatch):
    """That of no test here runs, such as one for a cluster, too. In a sentence, options may stand alone."""
    parsers = {verb: parser_of(script.imported(path).main) for verb, path in script.verbs().items()}
    parsers["data pack"] = parser_of(pack.main)
    helps = (script.listing(), *(p.format_help() for p in parsers.values()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(registry.PLUGINS, "")
    (tmp_path / "my_extensions/models").mkdir(parents=True)
    for whole, verb, words in commands_in("\n".join(helps) if source == "--help" else (PROJECT / source).read_text()):
        if f"{verb} {words[0] if words else ''}" in parsers:
            verb, words = f"{verb} {words[0]}", words[1:]
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= {*parsers[verb]._option_string_actions}, (verb, words)
        if whole and "--help" not in words:
            parsers[verb].parse_args(words)
    registry.forget()


def test_variables_and_exit_codes_are_those_of_the_code():
    """Every one that the code knows, and no other."""
    page = (PROJECT / "docs/options.md").read_text()
    code = " ".join(path.read_text() for room in ("bench", "baselines") for path in (PROJECT / room).rglob("*.py"))
    assert set(re.findall(r"^\| `(VIT_BENCH_\w+)`", page, re.MULTILINE)) == set(re.findall(r'"(VIT_BENCH_\w+)"', code))
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert set(map(int, re.findall(r"^\| (\d+) \|", page, re.MULTILINE))) == codes


def test_pages_are_in_the_sites_menu_and_links_lead_somewhere():
    menu = (PROJECT / "mkdocs.yml").read_text()
    assert set(re.findall(r": ([\w-]+\.md)$", menu, re.MULTILINE)) == {page.name for page in PAGES}
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (PROJECT / target).exists(), target


def test_the_python_lines_run(tmp_path, monkeypatch, capsys):
    """On the smallest suite: README's own study takes minutes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text('suite = "smoke"\nmodels = ["ViT-pico/14"]\n')
    exec(block("python"), {})
    assert "ViT-pico/14" in capsys.readouterr().out


def test_the_python_lines_run_on_a_study_that_is_loaded(tmp_path, monkeypatch, capsys):
    kept = shutil.copytree(PROJECT / "results/reference/scaling-cpu", tmp_path / "scaling-cpu")
    monkeypatch.setattr("bench.api.run", lambda *_, **__: bench.api.load(kept))
    exec(block("python"), {})
    printed = capsys.readouterr().out
    assert "ViT-femto/7" in printed and "best family at equal compute" in printed and "estimate" in printed
    picture = bench.api.load(kept).figure("compute")
    assert picture.path == kept / "figures" / "compute.png" and picture._repr_png_() == picture.path.read_bytes()
