"""Commands, one file each: they parse, call and print. `vit-bench VERB` and `python -m bench VERB` run them."""
