"""Where workers are started, one file each beside this machine (`bench.execute.local`)."""
