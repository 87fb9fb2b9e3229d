"""The roofline from activations and FLOPs gives that of the generated code; published rates lie below it."""

import csv

import pytest

from bench.core import registry
from bench.cost import flops, roofline
from bench.cost.peaks import ACCELERATORS, accelerator
from tools.codegen import MODELS, TABLE


def work(model: str, *, batch: int, side: int = 224) -> roofline.StepWork:
    count = flops.count(model, image_size=side, channels=3, num_classes=1000)
    return roofline.StepWork(
        family=registry.family_of(model).label,
        flops=count.train_flops_per_image["dense"],
        params=count.params,
        activation_bytes=count.activation_bytes or 0,
        images=batch,
    )


QUICK = ("ViT-S/16", "ViT-Ti/4")  # to count
ALL = pytest.mark.parametrize("models", [QUICK, pytest.param(tuple(MODELS), marks=pytest.mark.slow)])


@ALL
def test_it_is_that_of_the_generated_code_within_an_eighth(models):
    with TABLE.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    for row in (row for row in rows if row["model"] in models):
        step = work(row["model"], batch=int(row["batch"]), side=MODELS[row["model"]][1])
        rate = step.images / roofline.seconds(step, accelerator("H100"))
        assert rate == pytest.approx(float(row["roofline_images_per_second"]), rel=0.125), row["model"]


@ALL
def test_published_rates_are_below_the_roofline_and_of_the_models_they_name(models):
    for row in roofline.published():
        assert 0.2 < row.share < 1, row
    with roofline.PUBLISHED.open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if row["model"] not in models and models == QUICK:
                continue
            counted = work(row["model"], batch=1)
            assert counted.flops / 1e9 == pytest.approx(float(row["gflops"]), rel=0.01)
            assert counted.activation_bytes / 1e6 == pytest.approx(float(row["activation_megabytes"]), rel=0.01)


def test_each_model_left_out_is_predicted_within_the_stated_error():
    """Leave one model out: its published rates lie within two standard deviations of what the others reach."""
    import math

    models = dict.fromkeys(row.model for row in roofline.published())
    for left in models:
        others = [math.log(row.share) for row in roofline.published() if row.model != left]
        for row in (row for row in roofline.published() if row.model == left):
            off = math.log(row.share) - sum(others) / len(others)
            assert abs(off) < 2 * roofline.reached().error, row


def test_more_bandwidth_or_more_products_never_slow_a_step_down():
    step = work("ViT-S/16", batch=128)
    times = {name: roofline.seconds(step, accelerator(name)) for name in ("A100", "H100", "H200", "B200")}
    assert times["A100"] > times["H100"] > times["H200"] > times["B200"]
    assert all(row.bandwidth > 0 and row.gigabytes > 0 for row in ACCELERATORS)
