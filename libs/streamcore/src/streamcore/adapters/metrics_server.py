"""The metrics endpoint: whatever numbers a process has, in Prometheus' words."""

import errno
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamcore.errors import ConfigError
from streamcore.runtime.metrics import DESCRIPTIONS, Sample

_HOST: Final = "127.0.0.1"
_log = structlog.get_logger("streamcore.app")


def serve_metrics(port: int | None, samples: Callable[[], Iterable[Sample]]) -> None:
    """Serve the samples on a port (0: any free one) until the process ends; None: do not.

    ``samples`` is called by the server's threads.

    :raises ConfigError: if the port cannot be had.
    """
    if port is None:
        return
    registry = CollectorRegistry()
    registry.register(_Published(samples))
    try:
        server, _ = start_http_server(port, addr=_HOST, registry=registry)
    except OSError as error:
        raise ConfigError([_refused(port, error)]) from error
    _log.info("metrics", url=f"http://{_HOST}:{server.server_port}/metrics")


def _refused(port: int, error: OSError) -> str:
    why = (error.strerror or str(error)).lower()
    if error.errno == errno.EADDRINUSE:
        why = "it is in use; each process on a machine needs another one, or 0 for any free one"
    return f"metrics_port is {port}, and {_HOST} does not give it: {why}"


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
