"""Questions to the records of a study: one file each, which exports QUESTION."""
