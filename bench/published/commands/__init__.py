"""The command `vit-bench published`, which searches the tables of published networks."""
