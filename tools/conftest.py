"""Instruments are tested as what is installed: with its cache of decoded data, and the race's plug-ins known."""

from tests.conftest import pytest_configure, race

__all__ = ["pytest_configure", "race"]
