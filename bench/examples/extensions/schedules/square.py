"""A parabola from the peak to zero."""

from bench.train.schedules.schedule import Schedule

SCHEDULE = Schedule(factor=lambda recipe, done, steps: 1 - (done / steps) ** 2)  # steps since the warm-up
