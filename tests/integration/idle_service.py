"""A service whose clients tell how their events are taken away; run as a program.

TRIAL_SERVICE says which service, TRIAL_EVENTS names the file for what was seen: a line of JSON,
written anew a few times a second, of each client that is alive: how many statistics came, and how
long the latest ones had waited to be taken away.
"""

import importlib
import json
import os
import sys
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from typing import Any

from streamcore.adapters import kafka_admin, kafka_consumer, kafka_groups, kafka_producer

SERVICES = ("ingest", "aggregator", "sink")


class Seen:
    """What came of one client."""

    def __init__(self, kind: str, client: object) -> None:
        self.kind = kind
        self.client = weakref.ref(client)
        self.statistics = 0
        self.waited_s: deque[float] = deque(maxlen=50)

    def on_statistics(self, text: str) -> None:
        self.statistics += 1
        self.waited_s.append(time.time() - json.loads(text)["time"])


seen: list[Seen] = []


def counted(base: type) -> type:
    """Return a client class that counts its statistics; which come is for the settings to say."""

    class Counted(base):  # type: ignore[misc]
        def __init__(self, settings: dict[str, Any], **more: Any) -> None:
            client_seen = Seen(base.__name__, self)
            seen.append(client_seen)
            super().__init__({**settings, "stats_cb": client_seen.on_statistics}, **more)

    return Counted


def tell(path: Path) -> None:
    while True:
        alive = [
            {"kind": f"{one.kind}-{number}", "statistics": one.statistics,
             "waited_s": max(one.waited_s, default=0.0)}
            for number, one in enumerate(seen) if one.client() is not None
        ]  # fmt: skip
        new = path.with_suffix(".new")
        new.write_text(json.dumps(alive))
        new.replace(path)
        time.sleep(0.2)


def main() -> None:
    service = os.environ.pop("TRIAL_SERVICE")
    assert service in SERVICES
    events = Path(os.environ.pop("TRIAL_EVENTS"))
    for module, name in (
        (kafka_admin, "AdminClient"), (kafka_groups, "AdminClient"),
        (kafka_consumer, "Consumer"), (kafka_producer, "Producer"),
    ):  # fmt: skip
        setattr(module, name, counted(getattr(module, name)))
    threading.Thread(target=tell, args=(events,), daemon=True).start()
    sys.argv = [service]
    importlib.import_module(f"{service}.__main__").cli()


if __name__ == "__main__":
    main()
