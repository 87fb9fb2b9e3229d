"""One training loop for every family and device, and its parts."""
