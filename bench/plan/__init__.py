"""The work and cost of a study, before it starts."""
