"""Networks that nobody here wrote, as models of the project: which can be counted, trained and probed."""
