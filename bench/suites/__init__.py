"""Suites: named questions, one file each: QUESTION, FIGURES, HEADLINE, FAR and `cells(options)`. No torch."""
