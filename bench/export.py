"""Send a study's runs to a tracker (TensorBoard, Weights & Biases, MLflow, Trackio), or write them as CSV.

What a tracker has already is not sent again."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.core import registry
from bench.core.cli import folder, parser
from bench.core.errors import EXIT_OK, command, unknown
from bench.core.formatting import plural, printable
from bench.store import grid, index
from bench.store.study import Study, state_of
from bench.trackers import _contract as trackers

if TYPE_CHECKING:
    from bench.analysis.study_data import Records
    from bench.core.record import Record

EXAMPLES = """\
examples:
  python -m bench.export --suite scaling --to csv            horizons.csv, scores.csv, curves.csv in results/scaling/csv
  python -m bench.export --suite scaling --to tensorboard    then: tensorboard --logdir results/scaling/tensorboard
  python -m bench.export --suite scaling --to wandb          then: wandb sync results/scaling/wandb/offline-run-*
  python -m bench.export --suite scaling --to mlflow         then: mlflow ui --backend-store-uri sqlite:///…/mlflow.db
  python -m bench.export --suite scaling --to trackio        then: trackio show --project scaling
  python -m bench.export --suite scaling --to mlflow --follow     while a run, here or on a cluster, is at work
"""
CSV = "csv"
EVERY = 15.0  # seconds between looks


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("python -m bench.export", __doc__ or "", EXAMPLES)
    p.add_argument("--suite", required=True, help="which study: its folder's name")
    p.add_argument("--to", required=True, help=f"{', '.join((CSV, *registry.names('tracker')))}")
    p.add_argument("--results", type=folder, default=Path("results"), help="where results are (default: results)")
    p.add_argument("--into", type=folder, help="folder for files (default: the study's; Trackio's is TRACKIO_DIR)")
    p.add_argument("--project", default="", help="name of the project there (default: the study's)")
    p.add_argument("--follow", action="store_true", help="send what is new until every cell is done")
    p.add_argument("--parent", type=int, help="stop following when this process has ended")
    p.add_argument("--json", action="store_true", help="machine-readable output on standard output")
    arguments = p.parse_args(argv)
    study = arguments.results / arguments.suite
    if arguments.to not in (known := (CSV, *registry.names("tracker"))):
        raise unknown("tracker", arguments.to, known)
    if not study.is_dir():
        raise index.absent(arguments.suite, arguments.results)
    if arguments.to == CSV:
        from bench.analysis import study_data

        found = study_data.load(study)
        paths = write_csv(found.records, arguments.into or study / CSV)
        print(json.dumps({"files": [str(path) for path in paths]}) if arguments.json else "\n".join(map(str, paths)))
        _say_left_out(study, found, json_asked=arguments.json)
        return EXIT_OK
    changed = 0
    while True:
        whole = is_done(study)
        changed += trackers.send(study, arguments.to, folder=arguments.into, project=arguments.project)
        if whole or not arguments.follow or (arguments.parent and os.getppid() != arguments.parent):
            break
        time.sleep(EVERY)
    said = {"tracker": arguments.to, "changed": changed}
    print(json.dumps(said) if arguments.json else f"{arguments.to}: {plural(changed, 'run')} written.")
    if (study / "cells").is_dir():
        from bench.analysis import study_data

        _say_left_out(study, study_data.load(study), json_asked=arguments.json)
    return EXIT_OK


def _say_left_out(study: Path, found: Records, *, json_asked: bool) -> None:
    """One line on damaged records, beside machine-readable output on stderr."""
    from bench.analysis import study_data

    if said := study_data.left_out(study_data.damaged_paths(study, found)):
        print(printable(said), file=sys.stderr if json_asked else sys.stdout)


def is_done(study: Path) -> bool:
    """Whether every cell of the current grid has a result, but for those that cannot be run."""
    cells = {directory.path.name: state_of(directory).name for directory in Study(study).directories()}
    wanted = grid.read(study)
    left = set(grid.never_started(wanted, cells)) - set(wanted.refused if wanted else ())
    return set(cells.values()) <= {"done"} and not left


def write_csv(records: Sequence[Record], target: Path) -> list[Path]:
    """Every table of `bench.analysis.frames` as a CSV file."""
    from bench.analysis import frames
    from bench.core import files

    paths = []
    files.make_directory(target)
    for name, make in frames.TABLES.items():
        paths.append(target / f"{name}.csv")
        files.write_bytes(paths[-1], make(records).to_csv(index=False).encode())
    return paths


if __name__ == "__main__":
    sys.exit(main())
