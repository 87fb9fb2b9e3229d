"""Schedules: how the learning rate changes, and whether budgets share a training. One file each."""
