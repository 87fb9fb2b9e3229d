"""Scaling laws: forms, multi-start fits with cards, intervals by bootstrap, ranking by extrapolation. numpy and scipy only."""
