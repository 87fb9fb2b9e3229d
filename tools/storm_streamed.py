"""A study from shards, twice: left alone, and killed again and again at moments that nothing chose. Both must end with
the same records, the same weights and a report.

    python -m tools.storm_streamed [--data-root FOLDER --data folder:NAME] [--kills 2] [--seed 0]
        [--size 32] [--horizons 0,640,1280] [--images 500,2000] [--keep FOLDER]

Two models at two numbers of images. Without --data-root, shards are drawn first (tests/data/photographs.py).
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.store.records import read_record
from tests.conftest import PROJECT
from tests.data import photographs
from tests.reliability.storms import MARK, leftovers, ours, outcome

SUITE = '''"""Two models at two numbers of images, from shards."""
from bench.study.cell import Cell, TaskSpec
from bench.suites._recipes import recipe_for
from bench.study.suite import Suite

def cells(options):
    probe = TaskSpec(task="fewshot", data={data!r}, options=(("shots", (5,)), ("draws", 2), ("test_limit", 200)))
    recipes = {{model: recipe_for(model, batch=32, warmup_images=160, shift=0, crop=0.25, flip=True)
               for model in {models!r}}}
    return [Cell(model=model, data={data!r}, num_images=images, horizons={horizons!r}, image_size={size}, channels=3,
                 tasks=(probe,), recipe=recipes[model], axes=("data_size",))
            for model in {models!r} for images in {images!r}]

SUITE = Suite(
    name="shards", question="what do more images bring?", cells=cells, headline=({data!r},), figures=("data-size",)
)
'''
MODELS = ("ViT-pico/8", "ViT-nano/8")


class Runs:
    """One study, begun as often as it takes.

    Args:
        folder: of plug-ins, results and logs. data: a set with its options; root: its --data-root.
        cache: of the index; None for the user's.
    """

    def __init__(
        self,
        folder: Path,
        *,
        data: str,
        root: Path,
        size: int,
        images: Sequence[int],
        horizons: Sequence[int],
        cache: Path | None = None,
    ) -> None:
        self.folder, self.root, self.cells = folder, root, len(MODELS) * len(images)
        self.cache = {} if cache is None else {"VIT_BENCH_CACHE": str(cache)}
        (folder / "plugins" / "suites").mkdir(parents=True, exist_ok=True)
        suite = SUITE.format(data=data, models=MODELS, horizons=tuple(horizons), size=size, images=tuple(images))
        (folder / "plugins" / "suites" / "shards.py").write_text(suite)

    def start(self, name: str) -> subprocess.Popen:
        command = [
            sys.executable,
            "-m",
            "bench.run",
            "--suite",
            "shards",
            "--plugins",
            self.folder / "plugins",
            "--workers",
            "1",
            "--device",
            "cpu",
            "--data-root",
            self.root,
            "--results",
            self.folder / name,
            "--track",
            "none",
        ]
        settings = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1", MARK: str(self.folder / name)}
        with open(self.folder / f"{name}.log", "a") as log:
            return subprocess.Popen(command, env=settings | self.cache, stdout=log, stderr=log, cwd=PROJECT)

    def to_the_end(self, name: str) -> Path:
        """The study's folder."""
        code = self.start(name).wait()
        assert code == 0, (self.folder / f"{name}.log").read_text()[-4000:]
        return self.folder / name / "shards"

    def kill(self, name: str, *, after: int, later: float) -> str:
        """Begin, and kill every process some seconds after so many checkpoints and records were there. Returns what was
        there then, in words."""
        run, store = self.start(name), self.folder / name / "shards"
        while self._written(store) < after and run.poll() is None:
            time.sleep(0.02)
        time.sleep(later)
        assert run.poll() is None, f"it had ended: {(self.folder / f'{name}.log').read_text()[-2000:]}"
        os.kill(run.pid, signal.SIGKILL)
        for process in ours(self.folder / name):
            os.kill(process, signal.SIGKILL)
        run.wait()
        while ours(self.folder / name):
            time.sleep(0.05)
        done = len(list(store.glob("cells/*/record.json")))
        begun = sum(any(path.iterdir()) for path in store.glob("cells/*/checkpoints"))
        return f"{done} of {self.cells} runs were done, {begun} had been begun and saved"

    @staticmethod
    def _written(store: Path) -> int:
        return len(list(store.glob("cells/*/record.json"))) + len(list(store.glob("cells/*/checkpoints/step-*")))


def compare(alone: Path, killed: Path, *, cells: int) -> int:
    """AssertionError where the two differ. Returns how often cells of the killed study were taken up again."""
    expected, outcome_killed = outcome(alone), outcome(killed)
    assert len(expected) == cells and expected == outcome_killed, "records or weights differ"
    for store in (alone, killed):
        assert (store / "report.html").stat().st_size > 10_000 and not leftovers(store)
    attempts = [read_record(path).attempts for path in killed.glob("cells/*/record.json")]
    return sum(len(each) - 1 for each in attempts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--data", default="folder:shards", help="without a size")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--images", default="500,2000")
    parser.add_argument("--horizons", default="0,640,1280")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--keep", type=Path, help="a new folder, which stays")
    given = parser.parse_args()
    images, horizons = (tuple(map(int, text.split(","))) for text in (given.images, given.horizons))
    with tempfile.TemporaryDirectory(prefix="study-") as where:
        folder = given.keep or Path(where)
        root = given.data_root or folder / "data"
        if given.data_root is None:
            photographs.write(root / "shards", images=max(images), different=200, classes=10, tests=100)
        runs = Runs(
            folder,
            data=f"{given.data}:{given.size}px:rgb:stream",
            root=root,
            size=given.size,
            images=images,
            horizons=horizons,
        )
        moments = random.Random(given.seed)
        for number in range(given.kills):
            after, later = moments.randint(1 + number, 2 + 2 * number), moments.uniform(0, 4)
            print(f"kill {number + 1}: {runs.kill('killed', after=after, later=later)}", flush=True)
        killed = runs.to_the_end("killed")
        print("the killed study has ended", flush=True)
        again = compare(runs.to_the_end("alone"), killed, cells=runs.cells)
        print(
            f"{runs.cells} records and weights equal those of a study that was left alone; cells were continued or "
            f"begun again {again} times; both have a report"
        )


if __name__ == "__main__":
    main()
