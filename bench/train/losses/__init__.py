"""Losses, one file each."""
