"""Suites: named questions, one file each. A suite is QUESTION, FIGURES, HEADLINE, FAR and `cells(options)`; no torch."""
