"""Tables of published networks as a source of numbers that reports quote."""
