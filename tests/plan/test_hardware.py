"""Plans for devices that are not here: what they are, what they cost, and that ranks help as far as they can."""

import json
import math
from dataclasses import replace
from types import MappingProxyType

import pytest

from baselines import published
from bench.core.errors import UserError
from bench.core.formatting import data_size, significant
from bench.cost import flops, roofline
from bench.cost.hardware import CORES, parse
from bench.cost.hardware import price as price_of
from bench.cost.peaks import accelerator
from bench.plan import estimate, feed, price, resources, view
from bench.plan.cost_models import named_hardware
from bench.plan.estimate import Calibration, Rates, rate_key
from bench.plan.plan import make_plan
from bench.plan.sizes import DataSizes
from bench.store import records
from bench.study.cell import Cell, Recipe
from bench.study.record import Horizon
from tests.plan.finished import finish
from tests.plan.making import asked_for, cells_of, plan_of

CELL = Cell(
    model="ViT-S/16", data="imagenet", image_size=224, channels=3, horizons=(1_000_000,), recipe=Recipe(batch=1024)
)
SIZES = DataSizes(published=True)
COUNT = flops.count("ViT-S/16", image_size=224, channels=3, num_classes=1000)
RATES = Rates(
    model="ViT-S/16",
    train_images_per_second=5.0,
    eval_images_per_second=15.0,
    params=COUNT.params,
    measured=True,
    basis="measured",
    train_flops_per_image=dict(COUNT.train_flops_per_image),
    activation_bytes=COUNT.activation_bytes or 0,
)
CELLS_ONCE = [replace(CELL, data="digits", horizons=(1_000,))]
HERE = Calibration(rates={rate_key(CELL, SIZES["imagenet"].classes): RATES})


@pytest.mark.parametrize("text, name, count", [("8xH100", "H100", 8), ("a100", "A100", 1), ("16 × h200", "H200", 16)])
def test_hardware_is_a_number_and_a_name(text, name, count):
    hardware = parse(text)
    assert (hardware.device.name, hardware.count) == (name, count)


@pytest.mark.parametrize("text", ["8x", "0xH100", "x", "8xABACUS"])
def test_other_hardware_is_refused(text):
    with pytest.raises(UserError):
        parse(text)


def test_prices():
    assert price_of("2.5/gpuh") == price_of("2.5") == (2.5, True)
    assert price_of("20/h") == (20.0, False)
    with pytest.raises(UserError):
        price_of("cheap")


def there(records=MappingProxyType({}), device="H100"):
    return next(iter(named_hardware.rates_on(parse(device), HERE, [CELL], SIZES, records).rates.values()))


def test_without_records_a_rate_is_a_share_of_the_roofline_with_its_error():
    rates = there()
    assert not rates.measured and rates.error == roofline.reached("ViT", "H100").error and "roofline" in rates.basis
    of_peak = rates.train_images_per_second * RATES.train_flops_per_image["dense"] / 989e12
    assert 0.05 < of_peak < 0.4  # 40 % is 2 to 6 times what anybody published for this model
    assert there(device="A100").error > rates.error  # nothing published is of that device


def test_a_record_of_the_same_model_is_taken_and_one_of_another_scales_the_roofline():
    own = there({rate_key(CELL, 1000): 3000.0})
    assert own.train_images_per_second == 3000.0 and own.error == named_hardware.RECORDED_MODEL_ERROR
    pair = [CELL, replace(CELL, model="ViT-B/16")]
    count = flops.count("ViT-B/16", image_size=224, channels=3, num_classes=1000)
    larger = replace(
        RATES,
        model="ViT-B/16",
        params=count.params,
        activation_bytes=count.activation_bytes,
        train_flops_per_image=dict(count.train_flops_per_image),
    )
    both = Calibration(rates={**HERE.rates, rate_key(pair[1], 1000): larger})
    only_small = {rate_key(CELL, 1000): 0.3 * _roof(RATES)}
    rate = named_hardware.rates_on(parse("H100"), both, pair, SIZES, only_small).rates[rate_key(pair[1], 1000)]
    assert rate.train_images_per_second == pytest.approx(0.3 * _roof(larger, pair[1]), rel=1e-6)
    assert "records of other models" in rate.basis


def test_a_record_of_another_training_of_the_model_is_not_taken_for_its_own(tmp_path):
    """Depth, batch, number format and optimizer change the speed; seed, data and horizons do not."""
    rate, horizon = 3000.0, Horizon(images_seen=1, steps=1, images_per_second=3000.0)
    path = finish(tmp_path / "scaling", [CELL]).cell(CELL).record
    record = records.read_record(path)
    records.write_record(
        path,
        replace(
            record,
            horizons=(horizon,),
            environment=replace(record.environment, accelerator="NVIDIA H100 80GB HBM3"),
            data=replace(record.data, num_classes=1000),
        ),
    )
    measured = named_hardware.recorded(tmp_path, accelerator("H100"))
    changed = [replace(CELL, model_options=(("depth", 24),))]
    changed += [
        replace(CELL, recipe=replace(CELL.recipe, **change))
        for change in ({"batch": 64}, {"dtype": "float32"}, {"optimizer": "sgd"})
    ]
    same = replace(CELL, seed=3, horizons=(5,), recipe=replace(CELL.recipe, lr=0.5))
    known = Calibration(rates={rate_key(cell, 1000): RATES for cell in (same, *changed)})
    made = named_hardware.rates_on(parse("H100"), known, [same, *changed], SIZES, measured).rates
    assert made[rate_key(same, 1000)].train_images_per_second == rate
    assert made[rate_key(same, 1000)].basis == "recorded on H100"
    for cell in changed:
        other = made[rate_key(cell, 1000)]
        assert other.error > named_hardware.RECORDED_MODEL_ERROR and "records of other models" in other.basis


def _roof(rates, cell=CELL):
    return named_hardware._roof(cell, rates, accelerator("H100"))


def test_a_batch_is_divided_until_it_fits():
    device = accelerator("T4")
    images = named_hardware.micro_batch(replace(CELL, model="ViT-L/16"), replace(RATES, params=300_000_000), device)
    assert 1 <= images < CELL.recipe.batch
    assert (
        named_hardware.memory(CELL, replace(RATES, params=300_000_000), images=images, ranks=1) < device.gigabytes * 1e9
    )


# -- ranks -------------------------------------------------------------------------------------------------------------


def test_ranks_gain_less_than_their_number_and_nothing_without_cores():
    cell, rates = replace(CELL, recipe=Recipe(batch=32)), replace(RATES, train_images_per_second=1000.0)
    assert 6 < estimate.gain(CELL, there(), ranks=8, device="cuda") < 8
    assert estimate.gain(cell, rates, ranks=8, device="cpu", own=2 / 8) < 2  # two cores, whatever is asked for
    small = replace(rates, params=100_000)
    assert 1 < estimate.gain(cell, small, ranks=2, device="cpu") < 2
    assert estimate.gain(cell, small, ranks=1, device="cpu", own=0.5) == 0.5


# -- whole plans -------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_papers_grid_has_the_flops_of_table_6():
    """The compute axis at 7 and 14 epochs: the sum of the table's exaFLOPs, which are rounded to whole numbers."""
    wanted = {
        (published.model_name(row["name"]), int(row["epochs"])): float(row["exaFLOPs"])
        for row in published.table("table6")
    }
    total, sizes = 0.0, dict[str, int]()
    for cell in cells_of("scaling", scale="paper"):
        if "compute" not in cell.axes or cell.num_images is not None:
            continue
        for horizon in cell.horizons:
            key = (cell.model, round(horizon / 302_935_040)) if horizon else None
            if key in wanted or (key and (key[0], 7 if key[1] < 10 else 14) in wanted):
                sizes.setdefault(
                    cell.model,
                    flops.count(
                        cell.model, image_size=224, channels=3, num_classes=1000, activations=False
                    ).train_flops_per_image["paper"],
                )
                total += sizes[cell.model] * horizon / 1e18
    assert total == pytest.approx(sum(wanted.values()), rel=0.01)


def plan(monkeypatch, **options):
    """A plan for a model whose rates are made up."""

    def calibrated(cells, sizes, **_):
        return Calibration(rates={rate_key(cell, sizes[cell.data].classes): RATES for cell in cells})

    monkeypatch.setattr(estimate, "calibrate", calibrated)
    asked = {"suite": "data", "scale": "paper", "models": ("ViT-S/16",), "data": ("imagenet",), **options}
    return make_plan(asked_for(**asked), to_run=False)


def test_a_plan_for_named_devices_says_hours_money_and_how_sure_it_is(monkeypatch, tmp_path):
    made = plan(monkeypatch, hardware="8xH100", price="2.5/gpuh", results=tmp_path)
    priced = made.priced
    assert priced is not None and priced.money == pytest.approx(2.5 * priced.device_hours)
    assert priced.hours * 8 == pytest.approx(priced.device_hours, rel=0.25)  # all devices have something to do
    body = json.loads(json.dumps(made.json()))
    assert body["price"]["devices"] == 8 and body["price"]["money_range"][0] < body["price"]["money"]
    trained = [cell for cell in body["cells"] if cell["device_hours"]]
    assert sum(cell["device_hours"] for cell in trained) == pytest.approx(priced.device_hours)
    assert all(cell["basis"] and cell["needs"]["device"] < 80e9 for cell in trained)
    hourly = plan(monkeypatch, hardware="8xH100", price="20/h", results=tmp_path).priced
    assert hourly is not None and hourly.money == pytest.approx(20 * hourly.hours)


def test_all_devices_are_paid_for_while_one_works(monkeypatch, tmp_path):
    made = plan(monkeypatch, hardware="8xH100", results=tmp_path)
    cells = tuple(cell for cell in made.todo if cell.device_hours)[:1]
    wall = 3600 * (cells[0].device_hours or 0.0)  # the other seven have nothing to do
    every, one = (
        price.of(cells, hardware=parse("8xH100"), ranks=1, wall=wall, asked=asked)
        for asked in ((20.0, False), (2.5, True))
    )
    assert every.money == pytest.approx(8 * (one.money or 0.0)) == pytest.approx(20 * wall / 3600)


def test_the_slower_of_device_and_feed_decides_the_hours(monkeypatch, tmp_path):
    """An H100 would train 7,000 to 10,000 images a second of this model: few cores feed fewer, many more."""
    few, usual, many = (
        plan(monkeypatch, hardware="H100", cores=cores, results=tmp_path) for cores in (2, None, 1_000_000)
    )
    longest = max((c for c in few.cells if c.needs), key=lambda c: c.images)
    alone = next(c for c in many.cells if c.name == longest.name)
    trained = longest.images / (2 * feed.PHOTOGRAPHS_PER_SECOND) / 3600
    assert longest.device_hours == pytest.approx(trained, rel=0.05) and longest.device_hours > 3 * alone.device_hours
    assert usual.cells[0].needs.decoded == pytest.approx(CORES["H100"] * feed.PHOTOGRAPHS_PER_SECOND)
    for made in (few, many):  # a row's FLOPs, share of the peak and hours agree: waiting lowers the share
        cell = next(c for c in made.json()["cells"] if c["name"] == longest.name)
        used = cell["flops"]["dense"] / (3600 * cell["device_hours"])
        assert cell["utilisation"] == pytest.approx(used / (parse("H100").device.tera["bfloat16"] * 1e12))
    assert alone.needs.wait == 0 and few.priced.device_hours > usual.priced.device_hours >= many.priced.device_hours
    for share in ("4", "mps"):
        with pytest.raises(UserError, match=f"--share {share} is for GPUs of this machine, and not for 2xH100"):
            plan(monkeypatch, hardware="2xH100", share=share, results=tmp_path)
    with pytest.raises(UserError, match="--cores is of --hardware"):
        plan(monkeypatch, cores=8, results=tmp_path)


def test_the_feed_of_a_cell_grows_with_its_devices(monkeypatch, tmp_path):
    """Two devices with two cores each decode what four cores do; what ranks lose to each other is hidden behind it."""
    made = plan(monkeypatch, hardware="2xH100", cores=2, ranks=2, results=tmp_path)
    longest = max((c for c in made.cells if c.needs), key=lambda c: c.images)
    assert made.cost.ranks == 2 and longest.seconds == pytest.approx(
        longest.images / (4 * feed.PHOTOGRAPHS_PER_SECOND), rel=0.05
    )


def test_what_a_plan_repeats_and_stores_is_in_its_json(monkeypatch, tmp_path):
    """Epochs by division; every image of the smaller parts is seen thousands of times."""
    made = plan(monkeypatch, hardware="8xH100", results=tmp_path)
    body = json.loads(json.dumps(made.json()))
    for cell in (c for c in body["cells"] if c["cell"]["horizons"][-1]):
        images = cell["cell"]["num_images"] or 1_281_167
        assert cell["epochs"] == pytest.approx(cell["cell"]["horizons"][-1] / images)
    assert body["disk"]["total"] == made.disk.total
    parts = {part["data"]: part for part in body["repeated"]}
    assert list(parts) == ["imagenet@38000", "imagenet@130000", "imagenet@380000", "imagenet"]
    assert parts["imagenet@38000"]["most"] == pytest.approx(10_114, rel=1e-3)
    seconds = {part: sum(c.seconds for c in made.todo if c.cell.data_name == part) for part in parts}
    whole = sum(c.seconds for c in made.todo)
    assert {part: row["share"] for part, row in parts.items()} == pytest.approx(
        {part: each / whole for part, each in seconds.items()}
    )


def test_a_resident_set_is_not_decoded_and_its_plan_says_nothing_of_it():
    made = plan_of(CELLS_ONCE)
    assert made.repeated == () and not any("Decoding" in line for line in view.plan_summary(made))


def test_a_disk_that_is_too_small_is_warned_of_before_the_run(monkeypatch, tmp_path):
    monkeypatch.setattr(resources, "free_bytes", lambda _: 1_000)
    asked = {"suite": "smoke", "models": ("ViT-pico/14",), "results": tmp_path, "device": "cpu", "scale": "cpu"}

    def calibrated(cells, sizes, **_):
        return Calibration(rates={rate_key(cell, sizes[cell.data].classes): RATES for cell in cells})

    monkeypatch.setattr(estimate, "calibrate", calibrated)
    made = make_plan(asked_for(**asked), to_run=False)
    written = made.disk.checkpoints + made.disk.weights
    assert made.study.cells.notes[0].startswith(
        f"Warning: checkpoints and final weights need about {data_size(written)}"
    )
    monkeypatch.setattr(resources, "free_bytes", lambda _: written)
    assert not any("Warning" in note for note in make_plan(asked_for(**asked), to_run=False).study.cells.notes)


def test_the_range_is_that_of_the_rates_errors():
    cells = [replace(p, device_hours=3.0, error=0.5, basis="x") for p in plan_of([CELL]).cells]
    priced = price.of(cells, hardware=parse("H100"), ranks=1, wall=10_800, asked=None)
    assert priced.factor == pytest.approx(math.exp(price.RANGE_DEVIATIONS * 0.5)) and priced.money is None


def test_a_plan_says_what_fewer_devices_for_each_cell_save(monkeypatch, tmp_path):
    soonest = plan(monkeypatch, hardware="64xH100", results=tmp_path)
    (said,) = [note for note in soonest.study.cells.notes if note.startswith("--ranks ")]
    fewer = plan(monkeypatch, hardware="64xH100", ranks=int(said.split()[1]), results=tmp_path)
    assert fewer.cost.ranks < soonest.cost.ranks and fewer.priced.hours > soonest.priced.hours
    for made in (fewer, soonest):
        assert f"{significant(made.priced.device_hours)}" in said
    others = (*fewer.study.cells.notes, *plan(monkeypatch, hardware="H100", results=tmp_path).study.cells.notes)
    assert not [note for note in others if note.startswith("--ranks ")]


def test_more_ranks_than_devices_are_refused(monkeypatch, tmp_path):
    with pytest.raises(UserError, match="names 2"):
        plan(monkeypatch, hardware="2xH100", ranks=4, results=tmp_path)
    with pytest.raises(UserError, match="needs --hardware"):
        plan(monkeypatch, scale="cpu", price="2", results=tmp_path, data=None, models=("ViT-pico/14",))
