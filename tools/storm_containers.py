"""Two containers' worth of processes on one folder: each run in a process-id namespace of its own (Linux, as root).

`python -m tools.storm_containers --times 20`: both end with 0, every cell is done once, records
are equal bit for bit to those of an undisturbed run, and nothing is left.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.reliability import storms

NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="an empty one, or another storm's (default: temporary)")
    options = parser.parse_args()
    wrong = 0
    with storms.folder_of(options) as folder:
        expected = storms.undisturbed(folder)
        for number in range(options.times):
            results, began = folder / f"shared{number}", time.monotonic()
            runs = [storms.start(results, folder / "cache", before=NAMESPACE) for _ in range(options.at_once)]
            said = [run.communicate() for run in runs]
            problems = [
                f"exit code {run.returncode}: {text[1][-300:]}"
                for run, text in zip(runs, said, strict=True)
                if run.returncode
            ]
            problems += [] if storms.outcome(results / "smoke") == expected else ["other records or weights"]
            problems += [f"left: {name}" for name in storms.leftovers(results)]
            attempts = [len(list(cell.glob("attempts/*"))) for cell in (results / "smoke" / "cells").iterdir()]
            problems += [] if set(attempts) == {1} else [f"attempts: {attempts}"]
            wrong += bool(problems)
            print(f"{number}: {'; '.join(problems) or 'green'} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{options.times - wrong} of {options.times} green")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
