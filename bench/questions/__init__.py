"""Questions that are answered from the records of a study: one file each, which exports QUESTION."""
