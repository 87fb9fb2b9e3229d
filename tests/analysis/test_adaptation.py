"""Adapted models from records: none is taken for another."""

from dataclasses import replace

from bench.analysis.adaptation import adapted, best_of_models
from bench.questions.images_to_label import target
from bench.report.figures.adaptation import FIGURE
from bench.study.record import Record, Score
from tests.analysis._records import World
from tests.analysis._study import ask, read

DATA = "folder:photos:32px:rgb"


def record(model: str, accuracy: float, *, validated: bool = True) -> Record:
    """A model whose nearest neighbours are right on a share of the test images, and of the labelled ones."""
    made = World.small(seeds=(0,)).records()[0]
    detail = {"num_support": 60, "same_images": True, "validation": accuracy if validated else None}
    head = {"task": "adapt@knn", "data": DATA, "metric": "accuracy", "num_test": 400, "num_classes": 2, "chance": 0.5}
    score = Score(**head, value=accuracy, stderr=0.02, shots=30, draw=0, detail=detail)
    cell = replace(made.cell, model=model, data=DATA, num_images=None, horizons=(0,))
    row = replace(made.horizons[0], scores=(score,))
    return replace(made, cell=cell, directory=model.replace("/", "-"), horizons=(row,))


def test_models_whose_short_names_are_the_same_are_told_apart() -> None:
    """The weights of two folders, and a network with and without those that it was trained to."""
    names = ["timm:local-dir:a/net+pretrained", "timm:local-dir:b/net+pretrained", "timm:x+pretrained", "timm:x"]
    evidence = read([record(name, 0.9 - 0.2 * i) for i, name in enumerate(names)])
    assert [one.model for one in best_of_models(adapted(evidence))] == names
    (best,) = ask(evidence, "best adaptation")
    assert best.estimate is not None and abs(best.estimate - 0.2) < 1e-9 and names[1] in best.subject[2]
    assert [one.model for one in adapted(read([record(names[0], 0.9), record(names[3], 0.5)]))] == ["net", "x"]


def test_what_was_chosen_by_the_test_images_is_said() -> None:
    for validated, said in ((True, False), (False, True)):
        caption = FIGURE.draw(read([record("timm:x", 0.9, validated=validated)])).caption
        assert ("by the test images" in caption[0]) == said


def test_a_target_near_all_is_not_called_all() -> None:
    evidence = replace(read([record("timm:x", 0.9)]), targets=(0.07, 0.9995))
    assert [target(finding) for finding in ask(evidence, "images to label")] == ["7 %", "99.95 %"]
