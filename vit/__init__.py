"""The Vision Transformer of arXiv 2010.11929: configuration, model, checkpoints. Of frameworks it needs torch only; it
imports nothing else of the project.

Importing `vit` or `vit.config` does not import torch, so listings and `--help` stay fast.
"""
