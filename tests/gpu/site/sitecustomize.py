"""Found first on the path of a Python that is to pose as having GPUs: see tests/gpu/posing.py."""

from tests.gpu.posing import posing

_for_good = posing()
_for_good.__enter__()
