"""Changes that flags and study files make to a suite."""

import argparse
import math
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from baselines import published
from bench.core.cli import Parser
from bench.core.errors import UserError
from bench.plan import apply_overrides, preflight
from bench.plan.apply_overrides import length
from bench.plan.sizes import DataSizes
from bench.plan.study_cells import StudyCells
from bench.store import grid
from bench.study import registry
from bench.study.cell import Cell, Recipe
from bench.study.option import Kind, add_flags, given, options_of, resolve
from bench.study.options import RUN, StudyOptions, add_options, read_study
from bench.study.overrides import Overrides
from bench.study.registry import directory_name
from bench.study.suite import SuiteOptions
from bench.suites import _paper
from bench.train import schedule
from tests.conftest import PROJECT
from tests.plan import making
from tests.plan.finished import finish
from tests.plan.making import cells_of
from vit import config

# -- what the command line changes about a suite: lengths with units, fields, sweeps, and the paper's Table 3 by name --


CHANGES = options_of(Overrides)
CELL = Cell(
    model="ViT-pico/14", data="fashion-mnist", num_images=1000, horizons=(0, 640, 12_800), recipe=Recipe(batch=32)
)


def parsed(*words: str) -> Overrides:
    p = argparse.ArgumentParser()
    add_flags(p, CHANGES)
    return Overrides.of(resolve(CHANGES, given(p.parse_args(words), CHANGES)))


def changed(*words: str, cell: Cell = CELL) -> list[Cell]:
    return apply_overrides.changed(parsed(*words), [cell], DataSizes())


@pytest.mark.parametrize("field", sorted(config.CHOICES))
def test_every_word_of_a_model_option_stays_that_word(field: str) -> None:
    """ "none" is a position embedding, and not the absence of one."""
    for word in config.CHOICES[field]:
        assert dict(changed("--set", f"model.{field}={word}")[0].model_options) == {field: word}


@pytest.mark.parametrize(
    "text, images",
    [
        ("8000", 8000),
        ("8_000images", 8000),
        ("1e4", 10_000),
        ("100steps", 3200),
        ("1 step", 32),
        ("2epochs", 2000),
        ("0.5epochs", 500),
        ("5%", 640),
    ],
)
def test_lengths_in_any_unit(text, images):
    assert length(text, CELL, DataSizes()) == images


def test_an_epoch_of_a_whole_data_set_is_as_long_as_the_set():
    whole = Cell(model="ViT-pico/14", data="digits", horizons=(100,))
    from bench.data.load import load

    assert length("3epochs", whole, DataSizes()) == 3 * len(load("digits", "train"))


def test_a_study_file_repeats_which_cells_and_whose_images(tmp_path):
    asked = StudyOptions.called(None, {"only": "vit*", "max_unreadable": "5%", "data_root": "photos", "sizes": "9,3"})
    (tmp_path / "study.toml").write_text(asked.to_toml())
    kept = {"only": ("vit*",), "max_unreadable": "5%", "sizes": (3, 9), "data_root": Path("photos").absolute()}
    assert StudyOptions.called(tmp_path / "study.toml", {}).values().items() >= kept.items()


@pytest.mark.parametrize("text", ["[0.1]", "{}", "{[]:1}", "-" * 9999 + "1", "1" + "+1" * 5000])
def test_an_option_of_a_model_is_text_where_it_is_no_value(text):
    """Python cannot read such a value, or no cell's identity could hold it."""
    assert dict(changed("--set", f"model.dropout={text}")[0].model_options) == {"dropout": text}


def test_yes_and_no_are_understood_for_options_of_a_model():
    """As text, "no" would be as good as yes."""
    for text, value in (("no", False), ("True", True), ("YES", True), ("None", None), ("0.1", 0.1), ("(1,2)", (1, 2))):
        assert dict(changed("--set", f"model.norm_after_pool={text}")[0].model_options)["norm_after_pool"] == value


def test_nothing_asked_nothing_changed():
    for suite in set(registry.names("suite")) - {"whole-paper"}:  # which has the paper's scale alone
        plain = registry.load("suite", suite).cells(SuiteOptions())
        unchanged = apply_overrides.changed(parsed(), plain, DataSizes())
        assert [directory_name(c) for c in unchanged] == [directory_name(c) for c in plain]


def test_horizons_replace_the_budgets_and_keep_the_untrained_network():
    assert changed("--horizons", "2epochs,100steps,8000")[0].horizons == (0, 2000, 3200, 8000)
    assert changed("--horizons", "100steps", "--set", "batch=64")[0].horizons == (0, 6400)


def test_fields_are_set_in_their_own_type():
    (cell,) = changed(
        "--set",
        "clip=0",
        "--set",
        "warmup=10steps",
        "--set",
        "betas=0.9/0.95",
        "--set",
        "flip=yes",
        "--set",
        "optimizer=sgd",
        "--set",
        "model.dropout=0.1",
        "--set",
        "batch=64",
    )
    assert cell.recipe == Recipe(batch=64, clip=0.0, warmup_images=640, betas=(0.9, 0.95), flip=True, optimizer="sgd")
    assert cell.model_options == (("dropout", 0.1),)


def test_sweeps_are_combined_and_each_is_a_cell_of_its_own():
    cells = changed("--sweep", "lr=1e-4,3e-4,1e-3", "--sweep", "weight_decay=0,0.1")
    assert [(c.recipe.lr, c.recipe.weight_decay) for c in cells] == [
        (lr, wd) for lr in (1e-4, 3e-4, 1e-3) for wd in (0.0, 0.1)
    ]
    assert len({directory_name(c) for c in cells}) == 6


def test_raw_pixels_have_no_recipe_to_change():
    cells = cells_of("smoke", overrides=parsed("--set", "lr=1", "--horizons", "64"))
    assert {c.recipe.lr for c in cells if c.model == "pixels"} == {Recipe().lr}
    assert {c.horizons for c in cells} == {(0,), (0, 64)}


MANY = ",".join(map(str, range(1, 102)))


@pytest.mark.parametrize(
    "words, said",
    [
        # what would train nothing, or for ever
        (("--horizons", "1e400"), "not a length"),
        (("--horizons", "9" * 400), "not a length"),
        (("--horizons", "0.0001epochs"), "less than an image"),
        (("--horizons", "0.4,8000"), "less than an image"),
        (("--set", "warmup=1e400"), "not a length"),
        (("--set", "average=1"), "leaves nothing"),
        (("--set", "label_smoothing=1"), "leaves nothing"),
        (("--set", "shift=28"), "out of view"),
        (("--set", "model.num_classes=3"), "cannot be set"),
        (("--sweep", f"lr={MANY}", "--sweep", f"clip={MANY}"), "10,201"),
        # no values, or none of this field
        (("--sweep", "lr=,"), r"--sweep lr has no values"),
        (("--sweep", "lr=1e-3,2e-3,1e-3"), "lr names 1e-3 2 times"),
        (("--set", "lr=inf"), "lr cannot be 'inf'"),
        (("--set", "weight_decay=nan"), "weight_decay cannot be 'nan'"),
        (("--set", "betas=0.9/inf"), "betas"),
        (("--set", "learning=1"), "Unknown field of a recipe 'learning'"),
        (("--set", "weight_deacy=1"), "Did you mean 'weight_decay'"),
        (("--set", "lr"), "field=value"),
        (("--set", "lr=fast"), "lr cannot be 'fast'"),
        (("--set", "batch=1.5"), "a whole number"),
        (("--set", "crop=1.5"), r"crop of 1\.5 is not a fraction"),
        (("--set", "schedule=seperate"), "Did you mean 'separate'"),
        (("--set", "cooldown=2"), "not a fraction"),
        (("--set", "warmup=2miles"), "not a length"),
        (("--set", "warmup=200%"), "longer than the training"),
        (("--sweep", "warmup=5%,101%"), "longer than the training"),
        (("--set", "learning_rate=1e-3"), "Did you mean 'lr'"),
        (("--set", "batch-size=64"), "Did you mean 'batch'"),
        (("--horizons", "tomorrow"), "not a length"),
        (("--set", "lr=1", "--sweep", "lr=1,2"), "both set and swept"),
        (("--recipe", "paper:ViT-L/16:imagnet"), "Did you mean 'paper:ViT-L/16:imagenet'"),
    ],
)
def test_mistakes_say_what_is_allowed(words, said):
    with pytest.raises(UserError, match=said):
        changed(*words)


def test_every_row_of_the_papers_table_3_has_a_name():
    assert {(r.data, r.lr, r.shape, r.weight_decay, r.dropout) for r in _paper.rows().values()} == {
        (r["dataset"], float(r["base_lr"]), r["lr_decay"], float(r["weight_decay"]), float(r["dropout"]))
        for r in published.table("table3")
    }
    some = {"paper:ViT-L/16:imagenet", "paper:R152x2:jft-300m", "paper:ViT-L/16:jft-300m:14epochs"}
    assert some <= set(_paper.rows())


def test_at_the_papers_own_size_a_row_is_the_papers_recipe():
    """ViT-B/16 on ImageNet: 300 epochs, batch 4096, rate 3e-3 with cosine decay, decay 0.3, dropout 0.1."""
    images = 300 * _paper.IMAGES["ImageNet"]
    cell = Cell(model="ViT-B/16", data="imagenet", horizons=(images,), recipe=Recipe(batch=4096))
    (trained,) = changed("--recipe", "paper:ViT-B/16:imagenet", cell=cell)
    recipe = trained.recipe
    assert (recipe.lr, recipe.weight_decay, recipe.clip, recipe.betas) == (3e-3, 0.3, 1.0, (0.9, 0.999))
    assert trained.model_options == (("dropout", 0.1),)
    assert schedule.warmup_steps(recipe) == 10_000
    work = schedule.segments(recipe, trained.horizons)
    assert [s.start for s in work] == [0, 10_000]
    half = schedule.learning_rate(recipe, step=(10_000 + work[1].end) // 2, warmup=10_000, segment=work[1])
    assert half == pytest.approx(1.5e-3, rel=1e-3)


def test_a_row_scaled_down_follows_the_stated_rules():
    (trained,) = changed("--recipe", "paper:ViT-B/32:jft-300m", "--set", "batch=64", "--set", "clip=1")
    assert trained.recipe.lr == pytest.approx(8e-4 * math.sqrt(64 / 4096))
    assert trained.recipe.warmup_images == round(640 * 10_000 * 4096 / (7 * 303_000_000))  # of the shortest budget
    assert (trained.recipe.clip, trained.recipe.loss, trained.model_options) == (1.0, "sigmoid", ())


@pytest.mark.parametrize("words", [("--set", "warmup=5%"), ("--recipe", "paper:R50x1:jft-300m")])
def test_a_share_of_the_training_is_one_of_the_study_s_shortest_budget(words):
    """Cells of an axis have other longest budgets, and warm up alike."""
    cells = [c for c in cells_of("scaling", overrides=parsed(*words)) if any(c.horizons)]
    (warmup,) = {c.recipe.warmup_images for c in cells}
    share = 0.05 if "warmup=5%" in words else 10_000 * 4096 / (7 * 303_000_000)
    assert warmup == round(share * min(h for c in cells for h in c.horizons if h))
    preflight.check_warmup(cells)


def test_a_sweep_and_horizons_reach_the_grid():
    changes = parsed("--sweep", "lr=1e-3,2e-3", "--horizons", "64,2steps")
    cells = [cell for cell in cells_of("smoke", models=("ViT-pico/14",), overrides=changes) if cell.model != "pixels"]
    assert {cell.recipe.lr for cell in cells} == {1e-3, 2e-3} and {cell.horizons for cell in cells} == {(0, 64, 128)}


def test_a_recipe_with_dropout_says_which_models_take_it():
    with pytest.raises(UserError, match="no dropout") as refusal:
        cells_of("smoke", overrides=parsed("--recipe", "paper:ViT-B/16:imagenet"))
    assert "--models" in refusal.value.fix
    assert cells_of("smoke", overrides=parsed("--recipe", refusal.value.fix.rpartition(" ")[2].rstrip(".")))
    hybrids = ("R5+ViT-pico/14", "ViT-pico/14")
    assert cells_of("smoke", models=hybrids, overrides=parsed("--recipe", "paper:ViT-B/16:imagenet"))


@pytest.mark.parametrize("options", [{"heads": 0}, {"width": 0}, {"depth": -1}, {"mlp_width": 1.5}, {"head_dim": 0}])
def test_a_model_of_impossible_dimensions_is_refused(options):
    with pytest.raises(UserError, match=next(iter(options))):
        registry.build_model("ViT-pico/14", image_size=28, channels=1, num_classes=2, **options)


# -- a study file says what flags say: equal plans, equal refusals, and flags override it ------------------------------


FILES = sorted((PROJECT / "bench" / "examples").glob("*.toml"))


def options(*words: str) -> StudyOptions:
    """The options that a command line gives."""
    p = Parser()
    add_options(p, RUN)
    return StudyOptions.parsed(p.parse_args(words))


@pytest.fixture
def study(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "study.toml").write_text(text)
        return str(tmp_path / "study.toml")

    return write


def grid_asked(asked: StudyOptions) -> StudyCells:
    scale = "cpu" if asked.what.scale == "auto" else asked.what.scale
    return making.grid_asked(asked.changed(scale=scale), DataSizes(published=scale == "paper"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_example_plans_what_its_command_does(path):
    command = path.read_text().partition("\n")[0]
    said, filed = options(*shlex.split(command.removeprefix("# vit-bench run "))), options(str(path))
    assert replace(said, overrides=Overrides()) == replace(filed, overrides=Overrides())
    cells = grid_asked(said)
    assert grid_asked(filed) == cells
    again = StudyOptions.called(None, tomllib.loads(said.to_toml()))  # the file that is kept with the results
    assert grid_asked(again) == cells


def test_every_flag_can_be_said_in_a_file_and_reads_the_same(study):
    """One value of each kind for every option of the table, by its own reader."""
    some = {
        "suite": "data",
        "scale": "cpu",
        "recipe": "paper:ViT-B/16:imagenet",
        "changed": "keep",
        "reference": "paper",
        "executor": "ray",
        "job": "partition=gpu",
        "equal": "images",
        "retry": "failed",
        "target": "95%",
    }
    lines, words = [], []
    for option in RUN:
        value = some.get(option.name, option.choices[0] if option.choices else "2")
        if option.kind is Kind.FLAG:
            lines.append(f"{option.name} = true")
            words.append(option.flag)
        elif option.kind is not Kind.FIELDS:
            lines.append(
                f'{option.name} = ["{value}"]'
                if option.kind in (Kind.LIST, Kind.REPEATED)
                else f'{option.name} = "{value}"'
            )
            words += [option.flag, value]
    tables = ["[set]", "clip = 0", "model.dropout = 0.1", "[sweep]", "lr = [1e-3, 2e-3]"]
    words += ["--set", "clip=0", "--set", "model.dropout=0.1", "--sweep", "lr=0.001,0.002"]
    # A file alone runs no plug-ins.
    assert options(study("\n".join(lines + tables)), "--plugins", "2") == options(*words)


def test_flags_override_the_file(study):
    text = 'suite = "smoke"\nseeds = 3\nonly = ["vit-*"]\n[set]\nclip = 0\nlr = 1\n[sweep]\nwarmup = ["1%", "5%"]'
    asked = options(study(text), "--seeds", "2", "--set", "lr=2", "--set", "warmup_images=64", "--only", "r8*")
    assert (asked.what.suite, asked.what.seeds, asked.selection.only) == ("smoke", 2, ("r8*",))
    assert dict(asked.overrides.set) == {"clip": "0", "lr": "2", "warmup_images": "64"}
    assert asked.overrides.sweep == ()


@pytest.mark.parametrize(
    "text, said",
    [
        ('siute = "smoke"', "Did you mean 'suite'"),
        ("modles = []", "Did you mean 'models'"),
        ("workers = 0", "workers: '0' is not a whole number"),
        ("workers = [1, 2]", "takes one value"),
        ('calibrate = "yes"', "Give true or false"),
        ('models = ""', "models is empty"),
        ("models = []", "models is empty"),
        ('changed = "kepe"', "Did you mean 'keep'"),
        ("[set]\nlearning = 1", "Unknown field of a recipe"),
        ("[set]\nclip = 0\n[sweep]\nclip = [0, 1]", "both set and swept"),
        ("suite = ", "is not TOML"),
        ("[models]\na = 1", "cannot be"),
        ("seeds = 1979-05-27", "cannot be"),
        ("json = true", "Unknown option 'json'"),
    ],
)
def test_mistakes_name_the_file_and_say_what_is_allowed(text, said, study):
    path = study(text)
    with pytest.raises(UserError) as refusal:
        options(path)
    assert said in str(refusal.value)
    assert "study.toml" in refusal.value.what or "set and swept" in said


def test_a_byte_order_mark_is_passed_over(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('suite = "smoke"\n', encoding="utf-8-sig")
    assert options(str(path)).what.suite == "smoke"


def test_no_file_and_a_suite_in_its_place_are_explained(tmp_path):
    with pytest.raises(UserError, match="--suite smoke"):
        read_study("smoke")
    with pytest.raises(UserError, match="cannot be read"):
        read_study(tmp_path / "none.toml")


def test_a_run_keeps_the_file_that_asks_for_the_same(tmp_path, verb):
    """Everything is done already, so that a run only prepares the folder."""
    finish(tmp_path / "results" / "smoke", cells_of("smoke", models=("ViT-pico/14",)))
    words = ("--suite", "smoke", "--models", "ViT-pico/14", "--device", "cpu", "--workers", 1)
    assert verb("run", *words).returncode in (0, 2)  # a report may find nothing in these empty records
    kept = tmp_path / "results" / "smoke" / grid.STUDY_FILE
    assert tomllib.loads(kept.read_text()) == {
        "suite": "smoke",
        "scale": "cpu",
        "models": ["ViT-pico/14"],
        "device": "cpu",
    }
    assert options(str(kept)).what.models == ("ViT-pico/14",)


def test_every_option_is_of_one_group():
    names = [option.name for option in RUN]
    assert len(set(names)) == len(names) and set(names) == StudyOptions.of().values().keys()


def test_other_values_are_of_options_that_exist():
    assert StudyOptions.of().changed(seeds=3).what.seeds == 3
    with pytest.raises(TypeError, match="jobs"):
        StudyOptions.of().changed(jobs=3)
