"""The jobs of a worker, one file each: `run(cell, context) -> Result`."""
