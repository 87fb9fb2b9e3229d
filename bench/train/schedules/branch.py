"""All budgets share one training (the trunk) with the recipe's decay, from which the learning rate is cooled down to
zero for each (Hägele et al. 2024)."""

from bench.train.schedules.schedule import Schedule

SCHEDULE = Schedule(shares_trunk=True)
