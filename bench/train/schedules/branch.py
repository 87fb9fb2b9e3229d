"""All budgets share one training with the recipe's decay, and each cools down from it (Hägele et al. 2024)."""

from bench.train.schedules.schedule import Schedule

SCHEDULE = Schedule(shares_trunk=True)
