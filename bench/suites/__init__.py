"""Suites: named questions, one file each: QUESTION, FIGURES and `cells(options)`, see `_contract.Suite`. No torch."""
