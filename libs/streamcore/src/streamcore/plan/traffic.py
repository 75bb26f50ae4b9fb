"""Traffic: bytes per input line, and how many words a second a plan's quotas let through."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from streamcore import heroku
from streamcore.plan.rehearsal import Load, Rehearsed, rehearse
from streamcore.plan.services import Service
from streamcore.plan.topics import Plan, PlannedTopic

# Around the batches; measured with librdkafka 2.16 (docs/decisions/0019).
PRODUCE_REQUEST_BYTES: Final = 33
"""A request has one batch; the names of the client and of the topic come on top."""

FETCH_BYTES: Final = 23
FETCH_TOPIC_BYTES: Final = 20
FETCH_PARTITION_BYTES: Final = 36
"""An answer to a fetch has all these, even where there is nothing to read."""

FETCH_BATCH_BYTES: Final = 33
"""What comes is answered at once, so each batch costs a part of an answer."""

FETCHES_PER_S: Final = 10
"""How often an empty answer comes (``fetch.wait.max.ms`` of consumers, and of readers that follow
changelogs).
"""

WORDS_PER_S_MAX: Final = 1_000_000

SEARCHES_MAX: Final = 4
"""Each step is far nearer than the one before."""


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """Of one topic, per input line: records, bytes of batches produced and consumed."""

    topic: PlannedTopic
    records: float
    produced_bytes: float
    consumed_bytes: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes at one load. Overheads are requests and answers around the batches, per second."""

    load: Load
    topics: tuple[TopicTraffic, ...]
    produce_overhead_per_s: float
    consume_overhead_per_s: float

    @property
    def produced_bytes(self) -> float:
        """Produced per input line, in batches."""
        return sum(topic.produced_bytes for topic in self.topics)

    @property
    def consumed_bytes(self) -> float:
        """Consumed per input line, in batches."""
        return sum(topic.consumed_bytes for topic in self.topics)

    @property
    def produced_bytes_per_s(self) -> float:
        """What a produce quota counts."""
        return self.produced_bytes * self.load.lines_per_s + self.produce_overhead_per_s

    @property
    def consumed_bytes_per_s(self) -> float:
        """What a consume quota counts."""
        return self.consumed_bytes * self.load.lines_per_s + self.consume_overhead_per_s


@dataclass(frozen=True, slots=True)
class Throttle:
    """From so many words a second on a plan throttles, and which of its quotas does it."""

    plan: heroku.Plan
    words_per_s: float
    binds: Literal["produce", "consume"]


def estimate(services: Sequence[Service], plan: Plan, load: Load) -> Traffic:
    """Return the bytes that this load makes; writers must stand before readers.

    :raises TopologyError: if lines of text are no input of these services.
    """
    rehearsed = rehearse(services, plan, load)
    readings = {topic.wire: _readings(topic, services) for topic in plan.topics}
    topics = []
    for topic in plan.topics:
        sent = rehearsed.sent.get(topic.wire)
        if sent is not None:
            per_line = sent.bytes / rehearsed.lines
            topics.append(
                TopicTraffic(
                    topic, sent.records / rehearsed.lines, per_line, per_line * readings[topic.wire]
                )
            )
    return Traffic(
        load,
        tuple(topics),
        _produce_overhead_per_s(services, plan, rehearsed),
        _consume_overhead_per_s(services, plan, rehearsed),
    )


def throttle(
    services: Sequence[Service], plan: Plan, first: Traffic, limits: heroku.Plan
) -> Throttle | None:
    """Return where the quotas of the plan are reached; None if it has none.

    Bytes per word fall as words come faster, so the rate is looked for, from an estimate at any.
    """
    if limits.produce_bytes_per_s is None or limits.consume_bytes_per_s is None:
        return None
    now = first
    shares = _shares(now, limits)
    for _ in range(SEARCHES_MAX):
        if abs(max(shares) - 1) < 0.02:
            break
        words_per_s = min(WORDS_PER_S_MAX, now.load.words_per_s / max(shares))
        now = estimate(services, plan, replace(now.load, words_per_s=words_per_s))
        shares = _shares(now, limits)
    produce, consume = shares
    return Throttle(limits, now.load.words_per_s, "produce" if produce >= consume else "consume")


def _shares(traffic: Traffic, limits: heroku.Plan) -> tuple[float, float]:
    """Return how much of each quota is used."""
    return (
        traffic.produced_bytes_per_s / (limits.produce_bytes_per_s or 1),
        traffic.consumed_bytes_per_s / (limits.consume_bytes_per_s or 1),
    )


def _readings(topic: PlannedTopic, services: Sequence[Service]) -> int:
    """Return how often what is in a topic is consumed: by each group once, and by standbys."""
    if topic.kind != "changelog":
        return len(topic.readers)
    return sum(
        service.config.num_standby_replicas for service in services if service.name in topic.writers
    )


def _produce_overhead_per_s(services: Sequence[Service], plan: Plan, rehearsed: Rehearsed) -> float:
    groups = {service.name: service.names.group for service in services}
    total = 0
    for wire, sent in rehearsed.sent.items():
        writers = plan.topic(wire).writers
        client = max((len(groups[name]) for name in writers if name in groups), default=0)
        total += sent.batches * (PRODUCE_REQUEST_BYTES + client + len(wire))
    return total / rehearsed.seconds


def _consume_overhead_per_s(services: Sequence[Service], plan: Plan, rehearsed: Rehearsed) -> float:
    total = 0.0
    for service in services:
        standbys = service.config.num_standby_replicas
        read = [one for one in plan.topics if service.name in one.readers]
        followed = [one for one in read if one.kind == "changelog"]
        total += FETCHES_PER_S * _answer_bytes([one for one in read if one not in followed])
        total += FETCHES_PER_S * standbys * _answer_bytes(followed)
    for wire, sent in rehearsed.sent.items():
        batches = sent.batches * _readings(plan.topic(wire), services)
        total += FETCH_BATCH_BYTES * batches / rehearsed.seconds
    return total


def _answer_bytes(topics: Sequence[PlannedTopic]) -> int:
    if not topics:
        return 0
    each = (FETCH_TOPIC_BYTES + FETCH_PARTITION_BYTES * topic.partitions for topic in topics)
    return FETCH_BYTES + sum(each)
