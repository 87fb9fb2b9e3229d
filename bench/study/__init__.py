"""The data types of a study: cells, recipes, suites, options and records; and the registry of all plug-ins."""
