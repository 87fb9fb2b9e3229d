"""The jobs of a worker, which say what is done with a cell: one file each, which exports JOB."""
