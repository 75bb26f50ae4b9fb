"""Reaching brokers: one after the other is called, and what goes wrong is told apart.

librdkafka says what goes wrong with a connection in words, to its error callback or, where it
believes that it passes, to its log alone; so both are listened to.
"""

import logging
import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its __init__ has no __all__
    AdminClient,
    ClusterMetadata,
)

from streamcore.adapters.kafka_errors import error_of, made
from streamcore.adapters.kafka_settings import admin_settings
from streamcore.cluster import BrokerFacts, Reach
from streamcore.config import StreamsConfig

_BROKER_S: Final = 5.0
"""How long one broker may be silent."""
_CERTAIN_S: Final = 1.0
"""For so long must a broker that refuses connections go on with it."""
_ONE_CALL_S: Final = 0.5
_INFO: Final = 6  # librdkafka's level


_CLEAREST: Final[tuple[Reach, ...]] = (
    "foreign",
    "plain",
    "refuses us",
    "tls",
    "nobody",
    "unresolved",
    "trouble",
    "silent",
)


class Until:
    """A deadline that several threads look at."""

    def __init__(self, timeout_s: float) -> None:
        self._end_s = time.monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._end_s - time.monotonic())

    def shorter(self, timeout_s: float) -> "Until":
        return Until(min(timeout_s, self.left_s))


class Faults(logging.Handler):
    """The last that a client reported, and since when it does; nothing of it is written down."""

    def __init__(self) -> None:
        super().__init__()
        self.last: KafkaError | None = None
        self._heard: dict[Reach, KafkaError] = {}
        self._first_s: float | None = None
        self.logger = logging.Logger("streamcore.probe")  # in nobody's tree
        self.logger.addHandler(self)

    def on_error(self, error: KafkaError) -> None:
        """Be librdkafka's ``error_cb``."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - says nothing by itself
            return
        self.last = self._heard[reach_of(error)] = error
        if self._first_s is None:
            self._first_s = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        """Be its log: a connection that failed is a fault like any other."""
        found = re.fullmatch(
            r"FAIL \[[^]]*\] (?:\[thrd:[^]]*\]: )?(.*)", record.getMessage(), re.DOTALL
        )
        if found and "Disconnected" in found[1]:
            self.on_error(KafkaError(KafkaError._TRANSPORT, found[1]))  # noqa: SLF001

    @property
    def clearest(self) -> tuple[Reach, KafkaError] | None:
        """The fault that says most: one and the same is not always told in the same words."""
        return next(((one, self._heard[one]) for one in _CLEAREST if one in self._heard), None)

    @property
    def since_s(self) -> float:
        return 0.0 if self._first_s is None else time.monotonic() - self._first_s


def admin_client(settings: Mapping[str, Any], faults: Faults) -> AdminClient:
    """Return a client whose faults are heard.

    :raises ConfigError: if its settings are wrong.
    """
    wanted = {**settings, "error_cb": faults.on_error}
    return made(lambda: AdminClient(wanted, logger=faults.logger))


def probing_producer(settings: Mapping[str, Any], faults: Faults) -> Producer:
    """Return a producer whose faults are heard.

    :raises ConfigError: if its settings are wrong.
    """
    wanted = {**settings, "error_cb": faults.on_error}
    return made(lambda: Producer(wanted, logger=faults.logger))


class Call(NamedTuple):
    """A broker that was called, and what it said there is; None if it did not answer."""

    facts: BrokerFacts
    metadata: ClusterMetadata | None


def call_all(
    config: StreamsConfig, addresses: Iterable[str], until: Until, advertised: bool = False
) -> list[Call]:
    """Call all of these brokers at once; return them in their order.

    :raises ConfigError: if librdkafka takes the settings for wrong.
    """
    addresses = list(addresses)
    if not addresses:
        return []
    with ThreadPoolExecutor(max_workers=min(len(addresses), 16)) as pool:
        return list(pool.map(lambda one: _call(config, one, until, advertised), addresses))


def _call(config: StreamsConfig, address: str, until: Until, advertised: bool) -> Call:
    """Ask one broker what there is, and listen to what goes wrong."""
    until = until.shorter(_BROKER_S)
    faults = Faults()
    settings = {**admin_settings(config), "bootstrap.servers": address, "log_level": _INFO}
    client = admin_client(settings, faults)
    while True:
        try:
            metadata = client.list_topics(timeout=max(0.05, min(_ONE_CALL_S, until.left_s)))
            return Call(BrokerFacts(address, "answers", advertised=advertised), metadata)
        except KafkaException as failure:
            client.poll(0)
            fault = faults.clearest
            if until.left_s == 0 or (fault is not None and faults.since_s > _CERTAIN_S):
                reach, error = fault or ("silent", error_of(failure))
                said = plain_words(error.str())
                return Call(BrokerFacts(address, reach, said, advertised), None)


_SIGNS: Final[tuple[tuple[str, Reach], ...]] = (
    ("certificate verify failed", "foreign"),
    ("broker certificate could not be verified", "foreign"),
    ("PLAINTEXT broker listener", "plain"),
    ("wrong version number", "plain"),
    ("alert", "refuses us"),  # TLS 1.2 and 1.3 name the reason: unknown ca, certificate required
    ("certificate required", "refuses us"),
    ("Connection refused", "nobody"),
    ("setup timed out", "silent"),
)


def reach_of(error: KafkaError) -> Reach:
    """Return what a fault of a connection says about the broker at its other end."""
    if error.code() == KafkaError._RESOLVE:  # noqa: SLF001 - how the binding spells local codes
        return "unresolved"
    said = error.str()
    for sign, reach in _SIGNS:
        if sign in said:
            return reach
    if "Disconnected" in said or "Connection reset" in said:
        return "refuses us" if "ssl://" in said else "tls"
    if error.code() in {KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT}:  # noqa: SLF001
        return "silent"
    return "trouble"


def plain_words(said: str) -> str:
    """Return librdkafka's words without where and how long it stood when it said them."""
    said = re.sub(r"^(\w+://)?[^\s/]+/(bootstrap|\d+): ", "", " ".join(said.split()))
    return re.sub(r" \(after \d+ms in state \w+.*\)$", "", said)


def advertised_only(metadata: ClusterMetadata, calls: Iterable[Call]) -> list[str]:
    """Return the addresses that the cluster gives to clients, and that were not called."""
    known = {call.facts.address for call in calls}
    named = (f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())
    return sorted(address for address in named if address not in known)
