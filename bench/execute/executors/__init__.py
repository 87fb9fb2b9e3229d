"""Where workers are started, one file each, loaded by name: `--executor NAME`."""
