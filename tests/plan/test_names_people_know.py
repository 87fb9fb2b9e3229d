"""Options under the names that users of other trainers type, in every way of giving them."""

from pathlib import Path

import pytest

from bench.core.cli import Parser
from bench.core.errors import UserError
from bench.study.options import ALIASES, RUN, StudyOptions, add_options


def typed(*words: str) -> StudyOptions:
    p = Parser()
    add_options(p, RUN)
    return StudyOptions.parsed(p.parse_args(list(words)))


@pytest.mark.parametrize(
    "known, own",
    [
        ("--lr 1e-3", "--set lr=1e-3"),
        ("--batch-size 64", "--set batch=64"),
        ("--epochs 2,4", "--horizons 2epochs,4epochs"),
        ("--set lr=1e-3 clip=0", "--set lr=1e-3 --set clip=0"),
        ("--set lr=1e-3,clip=0,betas=0.9,0.99", "--set lr=1e-3 --set clip=0 --set betas=0.9,0.99"),
        ("--set=lr=1e-3,clip=0", "--set lr=1e-3 --set clip=0"),
        ("--sweep lr=1e-3,2e-3 clip=0,1", "--sweep lr=1e-3,2e-3 --sweep clip=0,1"),
        ("--workers 3", "--jobs 3"),
        ("--nproc-per-node 4 --nnodes 2", "--ranks 8 --nodes 2"),
        ("--num-seeds 3", "--seeds 3"),
        ("--output-dir there", "--results there"),
        ("-o there", "--results there"),
        ("--report-to none", "--track none"),
        ("--retry-failed", "--retry failed"),
        ("--share nvidia-mps", "--share mps"),
    ],
)
def test_one_option_by_two_names(known: str, own: str) -> None:
    assert typed("--suite", "scaling", *known.split()) == typed("--suite", "scaling", *own.split())


@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: alias.name)
def test_a_call_takes_every_name(alias) -> None:
    word = {"output_dir": "there", "report_to": "none", "epochs": "2", "lr": "1e-3"}.get(alias.name, "2")
    value = True if alias.value is not None else word
    words = [alias.flag] if alias.value is not None else [alias.flag, word]
    assert StudyOptions.called(None, {alias.name: value}) == typed(*words)


def test_yaml_says_what_toml_says(tmp_path: Path) -> None:
    toml, yaml = tmp_path / "study.toml", tmp_path / "study.yaml"
    toml.write_text('suite = "data"\nmodels = ["ViT-nano/7"]\nseeds = 3\n[set]\nclip = 0\nlr = 1e-3\n')
    yaml.write_text("suite: data\nmodels: [ViT-nano/7]\nseeds: 3\nlr: 1e-3\nset:\n  clip: 0\n")
    (one, other) = (typed(str(path)) for path in (toml, yaml))
    assert one.what == other.what
    assert {k: float(v) for k, v in one.overrides.set} == {k: float(v) for k, v in other.overrides.set}


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "3\n", "1: 2\n"])
def test_what_is_no_yaml_study(tmp_path: Path, text: str) -> None:
    path = tmp_path / "study.yml"
    path.write_text(text)
    with pytest.raises(UserError, match="is not YAML"):
        typed(str(path))


def test_flags_override_a_files_other_name(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("lr = 1e-3\n")
    assert dict(typed(str(path), "--set", "lr=2e-3").overrides.set) == {"lr": "2e-3"}


def test_two_names_of_one_option_in_a_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("jobs = 2\nworkers = 3\n")
    with pytest.raises(UserError, match="workers"):
        typed(str(path))


def test_a_path_is_a_data_set(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "photos" / "flowers").mkdir(parents=True)
    (tmp_path / "photos" / "birds").mkdir()
    monkeypatch.chdir(tmp_path)
    made = typed("--data", "photos/flowers:64px@100,./photos/birds", "--downstream", "photos/birds,mnist")
    assert made.what.data == ("folder:flowers:64px@100", "folder:birds")
    assert made.what.downstream == ("folder:birds", "mnist") and made.where.data_root == tmp_path / "photos"
    assert typed("--data", "hf:owner/name,fashion-mnist").what.data == ("hf:owner/name", "fashion-mnist")


@pytest.mark.parametrize(
    "words, said",
    [
        ("--data photos/none", "no folder photos/none"),
        ("--data photos/flowers --data-root elsewhere", "not in elsewhere"),
    ],
)
def test_a_path_that_is_no_set(tmp_path: Path, monkeypatch, words: str, said: str) -> None:
    (tmp_path / "photos" / "flowers").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=said):
        typed(*words.split())


def test_help_shows_one_name_for_most() -> None:
    p = Parser()
    add_options(p, RUN)  # type: ignore[arg-type]
    shown = p.format_help()
    assert "--jobs" in shown and "--lr" in shown and "--workers" not in shown and "--output-dir" not in shown
