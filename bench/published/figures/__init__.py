"""Figures of published networks."""
