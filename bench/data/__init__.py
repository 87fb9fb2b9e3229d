"""Data sets (one file each in `sets/`), their images and nested subsets. This package uses NumPy, not torch."""
