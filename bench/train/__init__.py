"""The training loop for every model family and device, and its parts: batches, schedules, optimizers, losses, ranks."""
