"""What a study is: its cells and recipes, suites, options, records, and the registry of all that can be plugged in."""
