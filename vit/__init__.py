"""The Vision Transformer of arXiv 2010.11929: configuration, model, checkpoints. Needs torch only.

Importing `vit` or `vit.config` does not import torch, so listings and `--help` stay fast.
"""
