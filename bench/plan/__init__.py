"""Plans a study: its work and its cost, before it starts."""
