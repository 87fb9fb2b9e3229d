"""The losses that a recipe can name, one file each."""
