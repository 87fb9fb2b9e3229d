"""Cost models, one file each, by throughputs measured here or for devices that were named. One is loaded by its name
when it is asked for."""
