"""What a study will do and cost, before it starts."""
