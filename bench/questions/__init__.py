"""The questions that are answered from the records of a study. Each is a file that exports `QUESTION`."""
