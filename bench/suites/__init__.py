"""Suites, the designs of studies: one file each, which exports SUITE. None imports torch."""
