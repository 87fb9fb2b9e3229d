"""Sources of numbers that others published, one file each. `--reference NAME` draws a source's points, and `--suite
NAME` reports on its numbers."""
