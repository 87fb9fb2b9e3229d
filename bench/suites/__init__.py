"""Suites: designs of studies, one file each, which exports SUITE. No torch."""
