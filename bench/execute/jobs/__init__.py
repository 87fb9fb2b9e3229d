"""The jobs of a worker, one file each, which exports JOB."""
