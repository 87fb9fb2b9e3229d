"""How often stated 90 % intervals of fitted laws hold the truth: `python -m tools.measure_fits [STUDIES]`.

Simulated studies are those of tools/coverage_of_fits.py, which the tests look at too; 200 per form take some minutes.
"""

import sys

from bench.laws import forms
from tools import coverage_of_fits as coverage


def main(studies: int) -> None:
    for family in coverage.FAMILIES:
        told, held = coverage.crossings(family, studies=studies)
        quiet = [f"{gap}: {coverage.silent(family, studies=studies, gap=gap):.1%}" for gap in (1.0, 1.01, 1.1)]
        print(family, f"crossing: told {told:.1%}, held {held:.1%}; no crossing, cannot tell:", *quiet, flush=True)
    print(
        "total interval at 2 and 3 times the largest budget:",
        coverage.beyond((2.0, 3.0), studies=studies // 2),
        flush=True,
    )
    for name in coverage.TRUTHS:
        for family in coverage.FAMILIES:
            if forms.FORMS[name].size > 4 and family == coverage.FAMILIES[0]:
                continue  # nine budgets do not determine five or six parameters
            shares = coverage.covered(name, family, studies=studies)
            print(name, family, *(f"{key} {share:.1%}" for key, share in shares.items()), sep=", ", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
