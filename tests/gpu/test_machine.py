"""On a real GPU every check of `vit-bench doctor` passes."""

import pytest
import torch

from bench.commands import doctor

pytestmark = [pytest.mark.machine, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


def test_the_doctor_finds_nothing_wrong(tmp_path, capsys):
    assert doctor.main(["--out", str(tmp_path / "doctor.json")]) == 0, capsys.readouterr().out
