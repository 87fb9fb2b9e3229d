"""Modules that every part uses: errors, files, formatting, seeds, devices, events."""
