"""A study with a known truth, read once."""

import pytest

from bench.analysis.evidence import Evidence
from tests.analysis._study import study


@pytest.fixture(scope="session")
def evidence() -> Evidence:
    return study()
