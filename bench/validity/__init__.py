"""Validity checks of a study: one file each, which exports CHECK.

The text below the name of each kind of result says what a `ValidityCheck` of that kind means, and what its fields hold.
"""
