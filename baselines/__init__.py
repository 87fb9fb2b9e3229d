"""Networks that the Vision Transformer is compared with: one file per family, found by file name. Importing this is
free."""
