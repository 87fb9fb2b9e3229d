"""A guest: any table of numbers becomes scaling laws with intervals. README.md says how, for a statistician.

Needs NumPy, SciPy and pandas, and of this project only `bench.core.errors` and `bench.core.formatting`.
"""

REFITS = 1_000
"""Resamples behind an interval of a law over all forms, unless asked otherwise: with 400 the ends of intervals move by
10 % at the median with another seed, with these by 5 %."""
