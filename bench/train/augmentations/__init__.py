"""Augmentations of training images in addition to shift, flip and crop, one file each."""
