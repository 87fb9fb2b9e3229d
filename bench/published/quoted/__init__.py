"""The published tables as a source of quoted numbers."""
