"""What a worker can do with a cell, one file each: `run(cell, context) -> body of the record`."""
