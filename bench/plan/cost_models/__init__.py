"""What a study costs: here, by measuring, or on devices that were named. Loaded by name when one is asked."""
