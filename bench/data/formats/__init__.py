"""The formats in which `bench.data.sets.folder` recognises a folder of images, one file each."""
