"""Case: what is judged. Services that share a connection, what was seen, where commands go."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from streamcore.cluster import ClusterFacts
from streamcore.config import StreamsConfig
from streamcore.errors import TopologyError
from streamcore.findings import Level
from streamcore.heroku import kafka_variables
from streamcore.plan.lines import Target
from streamcore.plan.services import Service
from streamcore.plan.topics import Plan, PlannedTopic, make_plan

# Topics of the broker itself, and of what stands beside it, as in __consumer_offsets.
_INTERNAL: Final = "__"


@dataclass(frozen=True)
class Case:
    """Services with one connection and one prefix, and what the cluster told them.

    ``release``: the release phase asks, so what is only missing yet is no failure where the
    workers wait for it. ``plan_known``: somebody has named the add-on's plan, it is not a guess.
    ``variables``: what each setting of the connection is read from.
    """

    services: Sequence[Service]
    facts: ClusterFacts
    target: Target
    release: bool = False
    plan_known: bool = False
    variables: Mapping[str, str] = field(default_factory=lambda: kafka_variables({}))

    @property
    def config(self) -> StreamsConfig:
        """The settings of one of them; those of the connection are the same in all."""
        return self.services[0].config

    @property
    def prefix(self) -> str:
        return self.config.prefix

    @property
    def exactly_once(self) -> tuple[str, ...]:
        """The services that need transactions."""
        return tuple(one.name for one in self.services if one.config.exactly_once)

    @cached_property
    def plan(self) -> Plan:
        """What the services need, with the partition counts that are there.

        Where these do not fit together each service is planned by itself, and one that they do not
        fit as on an empty cluster.
        """
        try:
            return make_plan(self.services, existing=self._counts)
        except TopologyError:
            parts = [self._alone(service) for service in self.services]
        topics = {topic.wire: topic for part in reversed(parts) for topic in part.topics}
        return Plan(
            tuple(topics.values()),
            tuple(group for part in parts for group in part.groups),
            {name: counts for part in parts for name, counts in part.partitions.items()},
            tuple(warning for part in parts for warning in part.warnings),
        )

    @cached_property
    def misfits(self) -> tuple[str, ...]:
        """Why the partition counts that are there do not fit."""
        reasons = [reason for one in self.services for reason in self._reasons([one])]
        return tuple(dict.fromkeys(reasons or self._reasons(self.services)))

    @cached_property
    def remade(self) -> Plan | None:
        """What the services need if only what comes from outside is kept as it is; None where that
        does not fit either.
        """
        written = {name for topic in self.plan.topics if topic.writers for name in [topic.wire]}
        kept = {name: count for name, count in self._counts.items() if name not in written}
        try:
            return make_plan(self.services, existing=kept)
        except TopologyError:
            return None

    @cached_property
    def _counts(self) -> Mapping[str, int]:
        return {name: topic.partitions for name, topic in self.facts.topics.items()}

    def _alone(self, service: Service) -> Plan:
        fits = not [*self._reasons([service])]
        return make_plan([service], existing=self._counts if fits else {})

    def _reasons(self, services: Sequence[Service]) -> Iterator[str]:
        try:
            make_plan(services, existing=self._counts)
        except TopologyError as error:
            yield str(error)

    @property
    def waiting(self) -> frozenset[str]:
        """The services that wait for what is missing, in place of ending."""
        return frozenset(one.name for one in self.services if one.config.wait_for_topics)

    def absent(self, users: Sequence[str]) -> Level:
        """Return how bad it is that something is missing that these services use."""
        return "warning" if self.release and self.waiting.issuperset(users) else "failure"

    def is_ours(self, topic: str) -> bool:
        """Return whether a topic counts as ours: behind the prefix, and none of the broker's."""
        return topic.startswith(self.prefix) and not topic.startswith(_INTERNAL)


def users_of(topic: PlannedTopic) -> tuple[str, ...]:
    """Return the services that write or read a topic."""
    return tuple(dict.fromkeys((*topic.writers, *topic.readers)))
