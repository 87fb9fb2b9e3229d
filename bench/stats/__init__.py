"""Scaling laws: forms, multi-start fits with cards, intervals by bootstrap, ranking by extrapolation. No torch."""

REFITS = 1_000
"""Resamples behind an interval of a law over all forms, unless asked otherwise: with 400 the ends of intervals move by
10 % at the median with another seed, with these by 5 %."""
