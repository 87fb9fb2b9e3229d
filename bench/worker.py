"""Runs cells: `python -m bench.worker --store results/scaling --cells cells.json --suite scaling`, also under torchrun.

See `bench.execute.worker`.
"""

from __future__ import annotations

import sys

from bench.execute.worker import main

if __name__ == "__main__":
    sys.exit(main())
