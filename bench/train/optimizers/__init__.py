"""The optimizers that a recipe can name, one file each."""
