"""Images, nested subsets, and one file per data set under `sets/`. NumPy only: no torch."""
