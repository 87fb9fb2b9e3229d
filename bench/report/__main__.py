"""Build a study's tables, figures and report from its records. Needs no torch; equal records give identical files.

`--to` sends the study's runs to a tracker, or writes its tables as CSV, in place of a report. `--cell` draws what is
inside a trained network."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.core.cli import accuracies, folder, parser
from bench.core.console import busy
from bench.core.errors import EXIT_OK, command, unknown
from bench.core.formatting import plural, printable
from bench.report import hub
from bench.report.build import build, say, to_json
from bench.report.style import PAGE, style_named
from bench.store import index
from bench.study import registry
from bench.study.options import results_of

EXAMPLES = """\
examples:
  vit-bench report                              the scaling study's report, from results/scaling
  vit-bench report --suite data --results out   another suite, another folder
  vit-bench report study.toml                   the study that this file asks for
  vit-bench report --reference paper            add the paper's published results to the figures
  vit-bench report --reference published        published checkpoints beside models of the same set and size
  vit-bench report --suite paper                the paper's own tables: its figures, and tests of its claims
  vit-bench report --suite published            published checkpoints: what they reach, and at which cost
  vit-bench report --suite data --into kept     copy the records of the grid to a new folder and report there
  vit-bench report --suite scaling --json       paths and findings as JSON
  vit-bench report --style paper --into paper   figures for a column of a paper, as PDF too

  vit-bench report --suite adapt --export model.pt   the best adapted model, with its classifier, for timm

  vit-bench report --to csv            horizons.csv, scores.csv, curves.csv in results/scaling/csv
  vit-bench report --to tensorboard    then: tensorboard --logdir results/scaling/tensorboard
  vit-bench report --to wandb          then: wandb sync results/scaling/wandb/offline-run-*
  vit-bench report --to mlflow         then: mlflow ui --backend-store-uri sqlite:///…/mlflow.db
  vit-bench report --to trackio        then: trackio show --project scaling
  vit-bench report --to mlflow --follow         while a run, here or on a cluster, is at work

  vit-bench report --to hub:my-lab/scaling      records, page and figures as a data set of the hub, nothing private
  vit-bench report --to hub:my-lab/scaling --into look    the same into a folder, to look at; nothing is sent

  vit-bench report --cell results/ablation/cells/NAME    filters, position embeddings, attention distance and
                                             roll-out, before and after training; the study's next report shows them
"""
CSV = "csv"


@command
def main(argv: list[str] | None = None) -> int:
    p = parser(
        "vit-bench report",
        __doc__ or "",
        EXAMPLES,
        plugins=registry.add_plugins,
        effects=lambda args: {
            "used": {"with --cell": args.cell and "cell data_root into"},
            "idle": {
                "without --cell or --export": not (args.cell or args.export) and "data_root",
                "without --to": not args.to and "follow project",
                "without --to hub:": not hub.accepts(args.to or "") and "private with_photos",
                "with --to": args.to and "reference target style verbose",
                "with --to hub:": hub.accepts(args.to or "") and "follow project",
            },
        },
    )
    p.add_argument("study", nargs="?", metavar="STUDY.toml", help="a study file, which names suite and results")
    p.add_argument("--suite", help="which study: its folder's name (default: scaling)")
    p.add_argument(
        "--results", "--output-dir", "-o", metavar="DIR", type=folder, help="where results are (default: results)"
    )
    p.add_argument(
        "--reference",
        choices=registry.names("quoted source"),
        help="add results of the paper, or of published networks, to figures",
    )
    p.add_argument(
        "--target", type=accuracies, metavar="95%", help="accuracies: what do they take? (default: those of the run)"
    )
    p.add_argument(
        "--style",
        type=style_named,
        default=PAGE,
        metavar="STYLE",
        help="sizes of figures: page, paper (8 pt, 3.25 inches wide, with PDF), paper:5.5, paper:6.75 or slide",
    )
    p.add_argument("--into", type=folder, help="another folder: records of the grid, and the report; files of --to")
    p.add_argument("--verbose", action="store_true", help="print every answer with its reasons, and every check")
    p.add_argument("--to", help=f"send runs instead: {', '.join((CSV, *registry.names('tracker')))}, hub:ORG/NAME")
    p.add_argument("--private", action="store_true", help="with --to hub: a new data set is for its owner alone")
    p.add_argument("--with-photos", action="store_true", help="with --to hub: small photos of your set are sent too")
    p.add_argument("--follow", action="store_true", help="with --to: send what is new until every run is done")
    p.add_argument("--project", default="", help="with --to: name of the project there (default: the study's)")
    p.add_argument("--parent", type=int, help=argparse.SUPPRESS)  # stop following when this process has ended
    p.add_argument("--cell", type=folder, metavar="FOLDER", help="draw the inside of a finished run's network instead")
    p.add_argument(
        "--export",
        type=folder,
        metavar="FILE.pt",
        help="of suite adapt: write the best model, which timm alone loads, instead of a report",
    )
    p.add_argument(
        "--data-root", type=folder, help="with --cell, --export: folder with data sets that are not installed"
    )
    arguments = p.parse_args(argv)
    if arguments.cell is not None:
        return _look_inside(arguments)
    named, results = results_of(arguments)
    suite = named or "scaling"
    directory = results / suite
    if arguments.to is not None:
        if hub.accepts(arguments.to):
            if not directory.is_dir():
                raise index.absent(suite, results)
            return _publish(directory, arguments)
        if arguments.to not in (known := (CSV, *registry.names("tracker"))):
            raise unknown("tracker", arguments.to, known)
        if not directory.is_dir():
            raise index.absent(suite, results)
        return _send_csv(directory, arguments) if arguments.to == CSV else _send(directory, arguments)
    if arguments.export is not None:
        return _export(directory, suite, arguments)
    return _report(directory, suite, arguments)


def _report(directory: Path, suite: str, arguments: argparse.Namespace) -> int:
    if suite not in registry.names("quoted source"):
        if not directory.is_dir():
            raise index.absent(suite, directory.parent)
        suite = index.suite_of(directory)
        if arguments.into:
            from bench.store.export import collect

            if left_out := collect(directory, arguments.into).left_out:
                some = ", ".join(left_out[:3]) + (", …" if len(left_out) > 3 else "")
                print(f"{len(left_out)} record(s) outside the current grid were not copied: {some}", file=sys.stderr)
    made, style = arguments.into or directory, arguments.style
    with busy("Reading records, asking questions, drawing figures …"):
        paths = build(made, suite=suite, reference=arguments.reference, targets=arguments.target, style=style)
    if arguments.json:
        print(json.dumps(to_json(paths)))
    else:
        from rich.console import Console

        say(paths, Console(), verbose=arguments.verbose)
    return EXIT_OK


def _export(directory: Path, suite: str, arguments: argparse.Namespace) -> int:
    from bench.analysis.adaptation import USAGE
    from bench.commands.adapted_model import export

    if not directory.is_dir():
        raise index.absent(suite, directory.parent)
    path = arguments.export
    said = export(directory, suite=index.suite_of(directory), path=path, data_root=arguments.data_root)
    print(json.dumps({"model": str(path), "usage": USAGE}) if arguments.json else f"{said}\n\n{USAGE}")
    return EXIT_OK


def _publish(study: Path, arguments: argparse.Namespace) -> int:
    suite = index.suite_of(study)
    repo, _ = hub.repository(arguments.to)
    with busy("Taking out what is private, building the page …"):
        if arguments.into:
            number = hub.prepare(study, arguments.into, suite=suite, repo=repo, photos=arguments.with_photos)
            where, said = str(arguments.into), "Nothing was sent: without --into it is."
        else:
            where, number = hub.push(
                study, arguments.to, suite=suite, only_private=arguments.private, photos=arguments.with_photos
            )
            said = f"Compare with it: vit-bench compare {arguments.to} results/{suite}"
    facts = {"published": where, "runs": number, "sent": arguments.into is None}
    print(json.dumps(facts) if arguments.json else f"{where}: {plural(number, 'run')}, the page and a card. {said}")
    return EXIT_OK


def _send_csv(study: Path, arguments: argparse.Namespace) -> int:
    from bench.analysis import study_data
    from bench.report.send import write_csv

    paths = [str(path) for path in write_csv(study_data.load(study).records, arguments.into or study / CSV)]
    print(json.dumps({"files": paths}) if arguments.json else "\n".join(paths))
    _name_damaged(study, as_json=arguments.json)
    return EXIT_OK


def _send(study: Path, arguments: argparse.Namespace) -> int:
    from bench.report.send import follow
    from bench.trackers import tracker as trackers

    where = {"folder": arguments.into, "project": arguments.project}
    if arguments.follow:
        changed = follow(study, arguments.to, **where, parent=arguments.parent)
    else:
        changed = trackers.send(study, arguments.to, **where)
    facts = {"tracker": arguments.to, "changed": changed}
    print(json.dumps(facts) if arguments.json else f"{arguments.to}: {plural(changed, 'run')} written.")
    if (study / "cells").is_dir():
        _name_damaged(study, as_json=arguments.json)
    return EXIT_OK


def _name_damaged(study: Path, *, as_json: bool) -> None:
    """Print one line on the study's damaged records, if it has any: to stderr if `as_json`, since standard output then
    holds JSON alone."""
    from bench.analysis import study_data

    if line := study_data.left_out(study_data.damaged_paths(study, study_data.load(study, rehearsals=True))):
        print(printable(line), file=sys.stderr if as_json else sys.stdout)


def _look_inside(arguments: argparse.Namespace) -> int:
    from bench.commands import look_inside
    from bench.store.study import INSPECTED

    into = arguments.into or arguments.cell.absolute().parent.parent / INSPECTED
    inspected = look_inside.of_cell(arguments.cell)
    return look_inside.print_drawn(inspected, data_root=arguments.data_root, into=into, as_json=arguments.json)


if __name__ == "__main__":
    sys.exit(main())
