"""Instruments of the developers: measurements and pictures. Not installed, and imported by nothing that is."""
