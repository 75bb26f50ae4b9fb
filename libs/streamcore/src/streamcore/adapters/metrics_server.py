"""The metrics endpoint: whatever numbers a process has, in Prometheus' words."""

from collections.abc import Callable, Iterable, Iterator

import structlog
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamcore.runtime.metrics import DESCRIPTIONS, Sample

_log = structlog.get_logger("streamcore.app")


def serve_metrics(port: int | None, samples: Callable[[], Iterable[Sample]]) -> None:
    """Serve the samples on a port (0: any free one) until the process ends; None: do not.

    ``samples`` is called by the server's threads.
    """
    if port is None:
        return
    registry = CollectorRegistry()
    registry.register(_Published(samples))
    server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    _log.info("metrics", url=f"http://127.0.0.1:{server.server_port}/metrics")


class _Published(Collector):
    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for name, labels, value in self._samples():
            if name not in families:
                kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                families[name] = kind(name, DESCRIPTIONS[name])
            families[name].add_sample(name, dict(labels), value)
        yield from families.values()
