"""Cluster: what a client was told by a cluster that it only looked at; facts without a judgement.

All names are those on the broker, with the prefix.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Reach = Literal[
    "answers",
    "nobody",  # nothing listens there
    "unresolved",  # no such host
    "silent",  # no answer in time
    "foreign",  # TLS: its certificate comes from another authority than ours
    "refuses us",  # TLS: it refuses our certificate, or misses one
    "plain",  # it speaks no TLS, and we do
    "tls",  # it hangs up on us, as one does that speaks TLS, and we do not
    "trouble",  # anything else; ``said`` has it
]


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """One broker, by its address. ``advertised``: the cluster names it, the settings do not."""

    address: str
    reach: Reach
    said: str = ""
    advertised: bool = False


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic that may be seen.

    ``settings`` is None where they were not asked for, or may not be asked for; ``rights`` (what
    this client may do, in Kafka's words) likewise.
    """

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, str] | None = None
    rights: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether something is allowed; None: nobody could say, and ``said`` is why."""

    allowed: bool | None
    said: str = ""


NOT_ASKED = Answer(None, "not asked")


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What was seen. Without a broker that answers, everything but ``brokers`` is empty.

    ``topics`` are all that this client may see, and ``hidden`` those asked for by name that the
    broker refuses to speak of. ``creatable``: those of them that are missing and that this client
    may create.
    """

    brokers: tuple[BrokerFacts, ...]
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    creatable: frozenset[str] = frozenset()
    groups: Mapping[str, Answer] = field(default_factory=dict)
    idempotence: Answer = NOT_ASKED
    transactions: Answer = NOT_ASKED

    @property
    def reachable(self) -> bool:
        """Whether any broker answered."""
        return any(broker.reach == "answers" for broker in self.brokers)
