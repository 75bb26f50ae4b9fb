"""Where the benchmark's broker comes from: KAFKA_URL if set, else one of its own."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks import topics
from benchmarks.jars import CACHE
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


@contextmanager
def at_hand(name: str) -> Iterator[topics.Broker]:
    """Yield such a broker as the benchmarks see it; its folder is gone afterwards."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=CACHE))
    try:
        with bootstrap(folder) as servers:
            yield topics.Broker(servers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
