"""Augmentations of training images beside shift, flip and crop, one file each."""
