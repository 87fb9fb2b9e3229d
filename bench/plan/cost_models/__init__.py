"""Cost models, one file each. Each takes throughputs from another source: measured on this machine, predicted for
devices that were named, or assumed. A model is loaded by its name when it is asked for."""
