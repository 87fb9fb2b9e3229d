"""The ViT paper's claims about scaling (arXiv 2010.11929): one file each, which exports CLAIM."""
