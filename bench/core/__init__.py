"""Modules that every part uses: specs, records, errors, registry, formatting, seeds."""
