"""Check an extension: a model, data set, task, suite, question, figure, job or part of a recipe, one's own or the
project's. A line per requirement. The tests of the project's own plug-ins (tests/core/test_contracts.py) call the same
checks."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from bench.commands.check_model import check_model
from bench.commands.check_parts import check_augmentation, check_loss, check_optimizer, check_schedule
from bench.commands.requirement import CheckOptions, Limited, Requirement, require, require_revision
from bench.core import cli
from bench.core.errors import EXIT_FAILED, EXIT_OK, UserError, command, unknown
from bench.core.formatting import duration, join, plural
from bench.core.measure import UPSTREAM, Measure
from bench.core.subprocesses import child_environment
from bench.core.user_code import prints_aside
from bench.study import registry
from bench.study.cell import to_json
from bench.study.kinds import KINDS as EVERY_KIND
from bench.study.names import DataName, ModelName

if TYPE_CHECKING:
    from bench.analysis.evidence import Evidence

EXAMPLES = """examples:
  vit-bench check my_model.py:Net                       a network in a file of your own, at 28 px grey
  vit-bench check timm:convnext_atto --image-size 64 --channels 3
  vit-bench check stripes --plugins my_extensions       whatever is called so: a set, task, suite, figure, job
  vit-bench check task:centroid --plugins my_extensions --data fashion-mnist
  vit-bench check recipe:convnext_tiny.fb_in1k          a published checkpoint's line of training stages
  vit-bench check figure:widths --plugins my_extensions --study results/perceptrons

Exit code 3: a requirement is not met."""
UNCHECKED = ("family", "command", "quoted source")  # a family is checked by its models' names
KINDS = {kind.replace(" ", "-"): kind for kind in registry.SUBFOLDERS if kind not in UNCHECKED}
CHECKED_TEST_IMAGES = 200
FIRST_IMAGES = 1_000  # images of a split that are searched for one that is not blank
LONG_JOB = 60.0  # seconds; a job that expects to take longer for a cell (a training run) is not tried
MADE_TWICE = 2e9  # bytes of decoded images up to which a data set is made a second time


@dataclass(frozen=True, kw_only=True)
class CheckedRequirement:
    """The outcome of checking one requirement.

    Attributes:
        what: what is required.
        met: whether it is met; None where it could not be checked, or is not required of this extension.
        detail: what was found, what is wrong, or why it was not checked.
    """

    what: str
    met: bool | None
    detail: str


DEFAULTS = CheckOptions()
MARKS = {True: "ok", False: "NO", None: "--"}


def main_parser() -> cli.Parser:
    """Return the parser of the command line."""
    p = cli.parser("vit-bench check", __doc__ or "", EXAMPLES, plugins=registry.add_plugins)
    p.add_argument("name", help="a model, or the name of a data set, task, suite, question, figure or job (KIND:NAME)")
    p.add_argument("--image-size", type=cli.positive, default=28, help="for a model, pixels per side (default 28)")
    p.add_argument("--channels", type=int, choices=(1, 3), default=1, help="for a model: 1 grey, 3 RGB (default 1)")
    p.add_argument("--compile", action="store_true", help="for a model: also compile it, which takes minutes on a CPU")
    p.add_argument("--data", default="digits", help="for a task: the set to evaluate on (default digits)")
    p.add_argument("--data-root", type=cli.folder, help="folder with data sets that are not installed")
    p.add_argument("--study", type=cli.folder, help="for a figure or question: a study, results/<suite>")
    return p


@command
def main(argv: list[str] | None = None) -> int:
    p = main_parser()
    arguments = p.parse_args(argv)
    study: Path | None = arguments.study
    options = CheckOptions(
        image_size=arguments.image_size,
        channels=arguments.channels,
        compiled=arguments.compile,
        data=arguments.data,
        data_root=arguments.data_root,
        evidence=None if study is None else partial(_evidence, study),
    )
    failed = 0
    results: list[dict[str, Any]] = []
    say: Callable[[str], None] = (lambda _: None) if arguments.json else (lambda line: print(line, flush=True))
    registry.load("data set", options.data)  # a misspelt name is no property of what is checked
    meant = meanings(arguments.name)
    mode = f"for a {meant[0][0].replace('family', 'model')}"
    p.refuse_idle(arguments, used={mode: " ".join(["name", *(USES[kind] for kind, _ in meant)])})
    for kind, name in meant:
        shown = kind if kind != "family" else "model"
        say(f"{shown} {name}")
        for one in checked(kind, name, options):
            failed += one.met is False
            say(f"  {MARKS[one.met]}  {one.what}{': ' * bool(one.detail)}{one.detail}")
            results.append({"kind": shown, "name": name, "requirement": one.what, "met": one.met, "detail": one.detail})
    say(f"{failed} requirement(s) not met; CONTRIBUTING.md has an example of each kind." if failed else "All met.")
    if arguments.json:
        print(json.dumps(results, indent=2))
    return EXIT_FAILED if failed else EXIT_OK


def checked(kind: str, name: str, options: CheckOptions = DEFAULTS) -> Iterator[CheckedRequirement]:
    """Check the requirements of an extension one after the other, and yield each outcome. Stop at the first gate (a
    requirement without which nothing further can be checked) that is not met.

    Args:
        kind: kind of the extension, a key of `CHECKS`.
        name: name of the extension.
    """
    unmet: set[str] = set()
    for required in CHECKS[kind](name, options):
        met: bool | None = True
        try:
            if required.needs in unmet:
                raise Limited(f"not looked at, since this is not met: {required.needs}")
            with prints_aside():
                detail = required.check()
        except Limited as limit:
            met, detail = None, str(limit)
        except Exception as error:  # code of an extension may raise anything
            met = False
            unmet.add(required.what)
            detail = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        yield CheckedRequirement(what=required.what, met=met, detail=detail)
        if required.is_gate and met is False:
            return


@cache
def _evidence(study: Path) -> Evidence:
    """Return the evidence of a study (its records, and the choices by which they are analysed), as its report computes
    it. `study`: the study's folder."""
    from bench.analysis import lr_sweep, study_data

    return lr_sweep.of_chosen(study_data.load(study))


def _tried_on(options: CheckOptions) -> Evidence:
    """Return the evidence (analysed records) of the study on which a figure or question is tried.

    Raises:
        Limited: no study was named.
    """
    if options.evidence is None:
        raise Limited("name a finished study: --study results/<suite>")
    return options.evidence()


def meanings(name: str) -> list[tuple[str, str]]:
    """Return (kind, name) of every extension that `name` may refer to. `name` may begin with a kind ("task:centroid").

    Raises:
        UserError: nothing has this name, or only something of a kind that has no requirements to check.
    """
    prefix, _, rest = name.partition(":")
    if prefix == "recipe" and rest:
        return [("recipe", rest)]
    if prefix in KINDS and rest:
        registry.load(KINDS[prefix], rest)
        return [(KINDS[prefix], rest)]
    if any(family.accepts(ModelName.parse(name).base) for family in registry.families()):
        return [("family", name)]
    kinds = [kind for kind in KINDS.values() if prefix in registry.names(kind)]
    if not kinds:
        for kind in (kind for kind in EVERY_KIND if kind not in KINDS.values() and name in registry.names(kind)):
            raise UserError(
                f"{name} is a {kind}: its object is checked when it is loaded, and has no further contract.",
                f"Kinds that have one: model, recipe, {', '.join(sorted(KINDS))}.",
            )
        known = (*registry.model_names(), *(other for kind in KINDS.values() for other in registry.names(kind)))
        raise unknown("extension", name, known, meant=f"{name}:CALLABLE" if name.endswith(".py") else "")
    return [(kind, name) for kind in kinds]


# -- data sets ---------------------------------------------------------------------------------------------------------


def check_data(name: str, options: CheckOptions) -> Iterable[Requirement]:
    """Return the requirements of a data set: it is described, is on this machine, is loaded, is the same every time,
    and has no image in both splits."""
    import numpy as np

    from bench.data.data_set import Kind
    from bench.data.load import data_set, load

    base, root = DataName.parse(name).base, options.data_root
    one = data_set(base)
    made: dict[str, Any] = {}

    def both() -> dict[str, Any]:
        return {split: load(name, split, root=root) for split in ("train", "test")}

    def described() -> str:
        for member in ("licence", "source", "how_to_get", "description", "split", "pinned"):
            require(bool(str(getattr(one, member)).strip()), f"{member} is missing")
        require("\n" not in one.description, "its description is more than one line")
        require(one.kind in get_args(Kind), f"kind {one.kind!r} is none of {', '.join(get_args(Kind))}")
        require_revision(one.revision)
        return f"{one.description}; licence: {one.licence}"

    def is_here() -> str:
        require(bool(one.available(root)), one.how_to_get)
        return ""

    def splits() -> str:
        made.update(both())
        train, test = made.values()
        for split, images in made.items():
            require(images.split == split, f"the {split} split is called {images.split!r}")
            require(name != base or images.name == name, f"its images are called {images.name!r}, not {name!r}")
            require(images.kind == one.kind, f"kind {images.kind!r} is not {one.kind!r}, as it says of itself")
            require(images.images_NHWC.shape[3] in (1, 3), "not 1 or 3 channels")
            require(images.images_NHWC.dtype == np.uint8, f"pixels are {images.images_NHWC.dtype}, not uint8")
            require(images.labels_N.dtype == np.int64, f"labels are {images.labels_N.dtype}, not int64")
            require(int(images.images_NHWC[:FIRST_IMAGES].max()) > 0, f"the {split} split begins with blank images")
            require(len(set(images.class_names)) == images.num_classes, "two classes have one name")
            labels = set(np.unique(images.labels_N).tolist())
            require(labels == set(range(images.num_classes)), f"the {images.split} split lacks classes")
        require(train.class_names == test.class_names, "the splits have different classes")
        shapes = {images.images_NHWC.shape[1:] for images in made.values()}
        require(len(shapes) == 1, f"the splits have images of {join(sorted(map(str, shapes)))}")
        sizes = {"train": len(train), "test": len(test), "classes": train.num_classes}
        stated = sizes if one.carried_in_part or name != base else one.stated or sizes
        require(sizes == stated, f"it has {sizes}, and states {stated}")
        shape = "x".join(map(str, train.images_NHWC.shape[1:]))
        return f"{len(train):,} + {len(test):,} images of {shape}, {train.num_classes} classes"

    def repeats() -> str:
        if not options.twice:
            raise Limited("not made a second time")
        size = sum(images.decoded_bytes for images in made.values())
        if size > MADE_TWICE:
            raise Limited(f"its {size / 1e9:.1f} GB were not made a second time")
        with tempfile.TemporaryDirectory() as nothing_cached:
            done = subprocess.run(
                [sys.executable, "-m", "bench.data", "--json", name, *(["--data-root", str(root)] if root else [])],
                env=child_environment(1) | {"VIT_BENCH_CACHE": nothing_cached},
                capture_output=True,
                text=True,
            )
        require(done.returncode == 0, f"it cannot be made a second time: {done.stderr.strip()[-200:]}")
        (again,) = json.loads(done.stdout)
        for split, images in made.items():
            same = images.content_hash == again[split]["content_hash"]
            require(same, f"the {split} split is another one when another process makes it again")
        return "also in another process that finds nothing cached"

    def apart() -> str:
        shared = len(np.intersect1d(*(images.content_keys_N for images in made.values())))
        if shared:
            raise Limited(f"{shared} different images are in both splits; scores are also given without copies")
        return ""

    return (
        Requirement(what="says what it is", check=described),
        Requirement(what="is on this machine", check=is_here, is_gate=True),
        Requirement(what="is loaded", check=splits, is_gate=True),
        Requirement(what="the same every time", check=repeats),
        Requirement(what="no image in both splits", check=apart),
    )


# -- tasks, suites, figures, jobs --------------------------------------------------------------------------------------


def check_task(name: str, options: CheckOptions) -> Iterable[Requirement]:
    """Return the requirements of a task: its interface, its scores with raw pixels as features (which must repeat), and
    its forecast of the number of images that go through the network."""
    import inspect

    import numpy as np

    from bench.data.load import load
    from bench.tasks.task import Task, TaskContext

    task: Task = registry.load("task", name)
    data, root = options.data, options.data_root
    made: dict[str, Any] = {}

    def is_callable() -> str:
        require_revision(task.revision)
        first, *others = inspect.signature(task.evaluate).parameters.values()
        require(first.name == "context" and "data" in [o.name for o in others], "not evaluate(context, *, data, …)")
        for option in others:
            require(option.kind is option.KEYWORD_ONLY, f"{option.name} is not a keyword argument")
            require(option.name == "data" or option.default is not option.empty, f"{option.name} has no default")
            require(option.name == "data" or option.annotation is not option.empty, f"{option.name}: no annotation")
        return ", ".join(option.name for option in others if option.name != "data") or "no options"

    def evaluate() -> Any:
        def part(data: str, split: str) -> Any:
            images = load(data, split, root=root)
            return images if split == "train" else images.take(np.arange(min(CHECKED_TEST_IMAGES, len(images))))

        pixels = lambda images: images.reshape(len(images), -1).astype("float32") / 255  # noqa: E731
        return task.evaluate(TaskContext(features=pixels, load=part, data_root=root), data=data)

    def scores() -> str:
        try:
            made["scores"] = scored = evaluate()
        except UserError as error:
            raise Limited(f"the pixel baseline has no score: {error.what}") from error
        require(bool(scored), "no score")
        for score in scored:
            require(Measure.of_score(score.task).task == name, f"a score is of task {score.task!r}, not {name!r}")
            require(score.value is None or 0 <= score.value <= 1, f"a value of {score.value} is not in [0, 1]")
            require(score.value is None or score.stderr is not None, "a score without standard error")
        best = max((score.value for score in scored if score.value is not None), default=None)
        return f"{len(scored)} of the pixel baseline on {data}" + (f", the best {best:.1%}" if best is not None else "")

    def repeats() -> str:
        if "scores" not in made:
            raise Limited("it needs a network")
        untimed = lambda scores: [replace(s, detail=dict(s.detail, seconds=None)) for s in scores]  # noqa: E731
        require(untimed(evaluate()) == untimed(made["scores"]), "other scores when it is evaluated again")
        return ""

    def planned() -> str:
        if task.forward_images is None:
            return "all images of the set, for there is no forward_images"
        sizes = {"num_train": 1000, "num_test": 500, "num_classes": 10, "own_size": 28}
        return f"{task.forward_images(**sizes):,} images through the network, of 1,000 + 500"

    return (
        Requirement(what="is callable, with options by name", check=is_callable, is_gate=True),
        Requirement(what="gives scores", check=scores),
        Requirement(what="the same every time", check=repeats, needs="gives scores"),
        Requirement(what="can be planned", check=planned),
    )


def check_suite(name: str, options: CheckOptions) -> Iterable[Requirement]:
    """Return the requirements of a suite: it is loaded, its figures exist, it has cells (training runs) at scale
    `cpu`, these evaluate its main tasks, and it follows options such as --models."""
    from bench.study import suite as suites

    made: dict[str, Any] = {}

    def is_loaded() -> str:
        made["suite"] = suite = suites.load(name)
        return suite.question

    def figures() -> str:
        for figure in made["suite"].figures:
            registry.load("figure", figure)
        return ", ".join(made["suite"].figures)

    def cells() -> str:
        made["cells"] = listed = made["suite"].cells(suites.SuiteOptions(data_root=options.data_root))
        require(bool(listed), "none")
        require(len(set(listed)) == len(listed), "two of them are the same: use merge of bench/study/suite.py")
        for cell in listed:
            registry.check_model(cell.model)
            registry.directory_name(cell)
        return f"{len(listed)}, {len({cell.model for cell in listed})} models"

    def answers() -> str:
        suite, tasks = made["suite"], registry.names("task")
        judged = {form for cell in made["cells"] for t in cell.tasks for form in (t.data, f"{t.task}:{t.data}")}
        judged |= {UPSTREAM} if any(cell.job == "train" and any(cell.horizons) for cell in made["cells"]) else set()
        named = (*suite.headline, *suite.far)
        for one in named:  # a data set, or TASK:DATA, TASK@SHOTS:DATA, or the test images of the set trained on
            if one != UPSTREAM:
                registry.load("data set", Measure.parse(one, tasks).data)
        require(len(set(suite.headline)) == len(suite.headline), "`headline` names something twice")
        measured = [one for one in named if str(replace(Measure.parse(one, tasks), sizes=())) in judged]
        require(bool(measured or not named), "none of `headline` and `far` is among the tasks of its cells")
        return ", ".join(measured)

    def follows() -> str:
        asked = suites.SuiteOptions(models=("ViT-pico/14",), seeds=2, data_root=options.data_root)
        models = {cell.model for cell in made["suite"].cells(asked) if cell.horizons != (0,)}
        if models != {"ViT-pico/14"}:
            raise Limited(f"asked for ViT-pico/14, it has cells of {', '.join(sorted(models))}: see options.models")
        return "--models, --seeds"

    return (
        Requirement(what="is loaded", check=is_loaded, is_gate=True),
        Requirement(what="its figures are there", check=figures),
        Requirement(what="has cells", check=cells),
        Requirement(what="evaluates what answers it", check=answers, needs="has cells"),
        Requirement(what="follows options", check=follows, needs="has cells"),
    )


def check_figure(name: str, options: CheckOptions) -> Iterable[Requirement]:
    """Return the requirements of a figure: it has a title, is drawn from a study's records, and is the same when it is
    drawn again."""
    from bench.report.figures.figure import NothingToDraw, render

    figure = registry.load("figure", name)

    def draw() -> Any:
        try:
            return figure.draw(_tried_on(options))
        except NothingToDraw as reason:
            raise Limited(f"the study has nothing to draw: {reason}") from reason

    def titled() -> str:
        require(bool(figure.title), "no title")
        return figure.title

    def drawn() -> str:
        drawing = draw()
        require(len(drawing.data) > 0, "no data: every plotted number is a row")
        require(bool(drawing.caption and drawing.alt), "no caption, or no alt text")
        return f"{len(drawing.data)} rows"

    def repeats() -> str:
        one, other = (render(name, figure.title, draw()) for _ in range(2))
        require(one == other, "other files for equal records")
        return ""

    return (
        Requirement(what="has a title", check=titled),
        Requirement(what="draws", check=drawn),
        Requirement(what="the same every time", check=repeats, needs="draws"),
    )


def check_question(name: str, options: CheckOptions) -> Iterable[Requirement]:
    """Return the requirements of a question about a study: it has texts, and its findings on a study can be put into
    words."""
    from bench.analysis import question as questions

    question = questions.load(name)

    def in_words() -> str:
        require(bool(question.label and question.yes and question.no), "label, yes or no is empty")
        require(question.text.endswith("?"), "its text does not end with a question mark")
        return question.text

    def answers() -> str:
        from bench.analysis.finding import Reason
        from bench.analysis.findings import Findings
        from bench.analysis.questions import cost
        from bench.report import text

        findings = tuple(question.ask(_tried_on(options)))
        if not findings:
            raise Limited("the study has nothing that bears on it")
        others = {finding.question for finding in findings} - {question.name}
        require(not others, f"its findings say that they answer {', '.join(sorted(others))}")
        wordless = {reason for finding in findings for reason in finding.reasons} - {*question.reasons, *Reason}
        require(not wordless, f"`reasons` has no words for {', '.join(sorted(wordless))}")
        text.answers(Findings(findings=findings, checks=(), cost=cost(()), scope=None))
        return plural(len(findings), "finding")

    return (
        Requirement(what="has words", check=in_words),
        Requirement(what="answers", check=answers),
    )


def check_job(name: str, options: CheckOptions) -> Iterable[Requirement]:
    """Return the requirements of a job, which is what a worker does with a cell (a training run): its interface, its
    forecast of a cell's time, and its result for one cell on a CPU."""
    import inspect

    from bench.execute.jobs.job import Job, JobContext
    from bench.store.study import CellDirectory
    from bench.study.cell import Cell
    from bench.study.record import Result

    job: Job = registry.load("job", name)
    made: dict[str, float] = {}
    cell = Cell(
        model="ViT-pico/14", data=options.data, image_size=options.image_size, channels=options.channels, job=name
    )

    def is_callable() -> str:
        names = [parameter.name for parameter in inspect.signature(job.run).parameters.values()]
        require(names == ["cell", "context"], f"run({', '.join(names)}) is not run(cell, context)")
        require_revision(job.revision)
        return ""

    def planned() -> str:
        if name == "train":
            raise Limited("trainings are measured")
        if job.expected_seconds is None:
            raise ValueError("it does not say expected_seconds")
        made["seconds"] = seconds = float(job.expected_seconds(cell, device="cpu"))
        require(0 < seconds < math.inf, f"expected_seconds gives {seconds}")
        return f"about {duration(seconds)} for a cell"

    def result() -> str:
        if not made.get("seconds", math.inf) <= LONG_JOB:
            raise Limited("trainings and long jobs are not tried here: run a suite of them")
        with tempfile.TemporaryDirectory() as folder:
            context = JobContext(
                directory=CellDirectory(Path(folder)),
                attempt=Path(folder),
                device="cpu",
                threads=1,
                progress=lambda _: None,
                should_stop=lambda: False,
                log=lambda _: None,
                data_root=options.data_root,
            )
            returned = job.run(cell, context)
        require(isinstance(returned, Result), f"a {type(returned).__name__}, not a Result of bench/study/record.py")
        require(
            returned.model.name == cell.model and returned.data.name == cell.data, "of another model, or other data"
        )
        json.dumps(to_json(returned), allow_nan=False)
        return f"{returned.status}{f': {returned.reason}' if returned.reason else ''}"

    return (
        Requirement(what="is callable", check=is_callable, is_gate=True),
        Requirement(what="can be planned", check=planned),
        Requirement(what="gives a result", check=result, needs="can be planned"),
    )


def check_recipe(name: str, options: CheckOptions) -> Iterable[Requirement]:
    """Return the requirements of the training recipe of a published checkpoint. `name`: the checkpoint's name.

    Raises:
        UserError: no installed source of published numbers has recipes.
    """
    sources = (registry.load("quoted source", source) for source in registry.names("quoted source"))
    known = [source.check_recipe for source in sources if source.check_recipe]
    if not known:
        raise UserError("No source of published numbers has recipes.", "Install the project as a whole.")
    return tuple(
        Requirement(
            what="one line of recipes.csv is its own, has a source, and is whole and counted",
            check=partial(check, name),
        )
        for check in known
    )


CHECKS: dict[str, Callable[[str, CheckOptions], Iterable[Requirement]]] = {
    "family": check_model,
    "data set": check_data,
    "task": check_task,
    "suite": check_suite,
    "question": check_question,
    "figure": check_figure,
    "job": check_job,
    "optimizer": check_optimizer,
    "loss": check_loss,
    "augmentation": check_augmentation,
    "schedule": check_schedule,
    "recipe": check_recipe,
}

USES = {  # kind -> options of the command that its check reads
    "family": "image_size channels compile",
    "data set": "data_root",
    "task": "data data_root",
    "suite": "data_root",
    "question": "study",
    "figure": "study",
    "job": "image_size channels data data_root",
    "optimizer": "",
    "loss": "",
    "augmentation": "channels",
    "schedule": "",
    "recipe": "",
}

if __name__ == "__main__":
    sys.exit(main(None))
