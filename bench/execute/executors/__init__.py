"""Executors, which start workers on this machine or on a cluster: one file each, which `--executor NAME` loads by its
name."""
