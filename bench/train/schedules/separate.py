"""Every budget is trained on its own, with the recipe's decay and cool-down."""

from bench.train.schedules.schedule import Schedule

SCHEDULE = Schedule()
