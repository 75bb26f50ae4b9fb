"""What the simulation does to the log ends with each test."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _the_log_of_others() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)
