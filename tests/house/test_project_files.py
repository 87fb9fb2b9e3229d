"""Files that other programs read are what those programs take: by published schemas, and by linters."""

import os
import shutil
import subprocess
import sysconfig

import pytest

from tests.conftest import PROJECT

pytestmark = pytest.mark.gate

SCHEMA = ("check-jsonschema", "--builtin-schema")  # it carries the schemas
CHECKS = {
    ".github/workflows/*.yml": (*SCHEMA, "vendor.github-workflows"),
    ".github/workflows/[!.]*.yml": (*SCHEMA, "custom.github-workflows-require-timeout"),
    ".github/ISSUE_TEMPLATE/[!c]*.yml": (*SCHEMA, "vendor.github-issue-forms"),
    ".github/ISSUE_TEMPLATE/config.yml": (*SCHEMA, "vendor.github-issue-config"),
    "CITATION.cff": (*SCHEMA, "vendor.citation-file-format"),
    ".pre-commit-config.yaml": ("pre-commit", "validate-config"),
    "docs/recipes/Dockerfile": ("hadolint",),
    "docs/recipes/*.sbatch": ("shellcheck",),
    ".ci/run": ("shellcheck",),
}


def checked(*command: object) -> subprocess.CompletedProcess[str]:
    """In an environment whose scripts are those of this interpreter."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    if not shutil.which(str(command[0]), path=path):
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, cwd=PROJECT, env=os.environ | {"PATH": path}
    )


@pytest.mark.parametrize("pattern", CHECKS)
def test_files_are_what_their_readers_take(pattern):
    paths = sorted(PROJECT.glob(pattern))
    done = checked(*CHECKS[pattern], *paths)
    assert paths and done.returncode == 0, done.stdout + done.stderr


def test_a_misspelt_key_of_a_workflow_is_noticed(tmp_path):
    (tmp_path / "ci.yml").write_text((PROJECT / ".github/workflows/ci.yml").read_text().replace("runs-on:", "run-on:"))
    assert checked(*SCHEMA, "vendor.github-workflows", tmp_path / "ci.yml").returncode == 1
