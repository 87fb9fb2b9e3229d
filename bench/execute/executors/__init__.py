"""An executor starts workers somewhere; each is one file, loaded by name: `--executor NAME`."""
