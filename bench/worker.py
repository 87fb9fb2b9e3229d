"""Entry point of a worker, the process that runs cells; also under torchrun. `bench.execute.worker` describes it.

Example: `python -m bench.worker --store results/scaling --cells cells.json --suite scaling`.
"""

from __future__ import annotations

import sys

from bench.execute.worker import main

if __name__ == "__main__":
    sys.exit(main())
