"""One training at the recipe's decay is shared, and each budget cools down from it (Hägele et al. 2024)."""

from bench.train.schedules.schedule import Schedule

SCHEDULE = Schedule(shares_trunk=True)
