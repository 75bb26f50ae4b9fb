"""Where the benchmark's broker comes from: KAFKA_URL if set, else one of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from devstack.kafka import Broker


@contextmanager
def bootstrap(folder: Path) -> Iterator[str]:
    """Yield the bootstrap servers of a plain broker; one that was started here ends with it."""
    url = os.environ.get("KAFKA_URL")
    if url:
        yield ",".join(urlsplit(part).netloc for part in url.split(","))
        return
    with Broker(folder) as broker:
        yield broker.bootstrap
