"""Data sets whose images are rendered or cut out by this project's code."""
