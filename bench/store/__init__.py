"""The only code that writes results: atomic files, cell directories, records, checkpoints, leases."""
