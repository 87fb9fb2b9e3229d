"""Data sets (one file each in `sets/`), their images, and nested subsets, each of which contains every smaller one.
This package uses NumPy, not torch."""
