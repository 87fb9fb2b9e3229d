"""`vit-bench --print-completion`: the script, as bash runs it."""

import shutil
import subprocess
import sys

import pytest

from bench import __main__ as vit_bench

ASK = """
source {script}
set -- $1
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
$(complete -p vit-bench | sed 's/.*-F \\([^ ]*\\) .*/\\1/') vit-bench "${{@: -1}}" "${{@: -2:1}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.gate
@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_completes_verbs_options_choices_names_and_files(tmp_path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("shtab")
    assert vit_bench.main(["--print-completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "runs.csv").touch()
    for words, expected in {
        "f": {"findings", "fit", "flops"},
        "fit --fig": {"--figure"},
        "fit --x compute --loss s": {"squares"},
        "run --suite sca": {"scaling"},
        "run --plan --hor": {"--horizons"},
        "compare --fail-if w": {"worse"},
        "fit run": {"runs.csv"},
    }.items():
        line = ["bash", "-c", ASK.format(script=tmp_path / "script"), "bash", f"vit-bench {words}"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
        assert set(done.stdout.split()) == expected, done.stderr


def test_a_shell_that_has_none_and_a_missing_package_are_said(monkeypatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert vit_bench.main(["--print-completion"]) == 2
    assert "pip install shtab" in capsys.readouterr().err
    monkeypatch.undo()
    pytest.importorskip("shtab")
    assert vit_bench.main(["--print-completion", "powershel"]) == 2
    assert "Unknown shell" in capsys.readouterr().err
