"""One run of the broker that later starts profit from.

Java keeps the classes of a run as it has loaded and linked them; a start from such a cache takes
a second instead of three. It is made once, at set-up.
"""

import os
import shutil

from confluent_kafka import Producer

from devstack.kafka import Broker, class_cache_file
from devstack.places import CACHE
from devstack.topics import Topic, create_topics

_DUMP_S = 120.0
_FLUSH_S = 10.0


def train() -> None:
    """Make the class cache if it is missing; a broker without one is slower and no worse."""
    wanted = class_cache_file()
    if wanted.exists():
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = wanted.with_suffix(f".{os.getpid()}")
    folder = CACHE / f"kafka-training-{os.getpid()}"
    broker = Broker(folder, java_options=(f"-XX:AOTCacheOutput={unfinished}",))
    try:
        broker.start()
        create_topics({"bootstrap.servers": broker.bootstrap}, [Topic("training")])
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        producer.produce("training", b"")
        producer.flush(_FLUSH_S)
        del producer
        broker.stop(timeout_s=_DUMP_S)  # Java writes the cache on its way out
        if unfinished.exists():
            unfinished.rename(wanted)
    finally:
        broker.kill()
        unfinished.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
