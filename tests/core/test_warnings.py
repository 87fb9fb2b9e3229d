"""A warning of the project is one sentence; those of others say where they come from."""

import subprocess
import sys

import pytest

PROGRAM = """
import warnings
from bench.core.errors import command
from bench.data import decode

@command
def main(argv):
    decode.judge(["a.jpg (cut off)"], count=10_000, where="photos")
    warnings.warn("of others")
    return 0

main([])
"""


@pytest.mark.gate
def test_a_warning_is_a_sentence_without_code():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    own, *others = done.stderr.splitlines()
    assert own == "warning: photos: 1 of 10,000 images cannot be read: a.jpg (cut off). They are left out."
    assert any("UserWarning: of others" in line for line in others)
