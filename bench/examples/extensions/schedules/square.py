"""A schedule: the learning rate falls from its peak to zero along a parabola."""

from bench.train.schedules.schedule import Schedule

SCHEDULE = Schedule(factor=lambda recipe, done, steps: 1 - (done / steps) ** 2)  # steps since the warm-up
