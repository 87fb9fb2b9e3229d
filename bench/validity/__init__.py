"""Validity checks of a study: one file each, which exports CHECK.

Below the name of each kind of result, a file says what its `ValidityCheck` means, and what its fields hold.
"""
