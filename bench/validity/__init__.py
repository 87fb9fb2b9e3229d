"""Validity checks of a study: one file each, which exports CHECK: its condition and its words."""
