"""Numbers that others published, one file a source: `--reference NAME`, and the suite of that name."""
