"""The training loop, which serves every model family and device, and its parts."""
