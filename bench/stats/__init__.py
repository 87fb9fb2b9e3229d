"""Scaling laws: forms, multi-start fits with cards, intervals by bootstrap, ranking by extrapolation. No torch."""
