"""Plan a study: which runs are left to do, and what they cost, before any of them starts."""
