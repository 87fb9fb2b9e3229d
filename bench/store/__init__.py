"""The only code that writes results: folders of studies and cells, records, checkpoints, weights, leases."""
