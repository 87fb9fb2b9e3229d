from tests.e2e.conftest import smoke  # noqa: F401 - the shared uninterrupted run
