"""The formats of folders of images that `bench.data.sets.folder` can read, one module for each."""
