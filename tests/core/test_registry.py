"""A file that cannot be imported is named, with the line, by whatever verb meets it."""

from __future__ import annotations

import pytest

from bench.core import registry
from bench.core.errors import UserError


@pytest.mark.parametrize(
    "text, line, what",
    [
        ("FAMILY = 1\ndef build(:\n", 2, "invalid syntax"),
        ("FAMILY = 1\n\nREVISION = revision\n", 3, "NameError"),
        ("FAMILY = 1\nimport no_such_package.part\n", 2, "No module named 'no_such_package'"),
        ("FAMILY = 1\n\n\nraise SystemExit(2)\n", 4, "SystemExit: 2"),
        ("from bench.core.spec import Sell\n", 1, "cannot import name 'Sell'"),
    ],
)
def test_one_message_names_file_and_line(text, line, what, tmp_path, monkeypatch):
    package = tmp_path / "added"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "mine.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry.FOLDERS, "family", "added")
    registry.names.cache_clear()
    try:
        with pytest.raises(UserError) as refusal:
            registry.load("family", "mine")
    finally:
        registry.names.cache_clear()
        registry.load.cache_clear()
        for name in [name for name in registry.importlib.sys.modules if name.partition(".")[0] == "added"]:
            del registry.importlib.sys.modules[name]
    assert f"added/mine.py, line {line}" in refusal.value.what and what in refusal.value.what
    assert ("pip install no_such_package" in refusal.value.fix) == ("no_such_package" in text)
