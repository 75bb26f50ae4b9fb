"""Topics: are all topics of a topology there, and do they fit? Internal ones are made if not.

Partition counts are asked again at each assignment and now and then: topics that grow under a
running application would send a key to a partition whose state lives elsewhere.
"""

from collections.abc import Mapping

import structlog

from streamcore.errors import RetriableError, TopicError
from streamcore.runtime import internal_topics
from streamcore.runtime.ports import Admin, TopicSpec
from streamcore.runtime.settings import WorkerSettings
from streamcore.topology.graph import Partitions, Topology, partition_counts
from streamcore.topology.naming import Names

_log = structlog.get_logger("streamcore.topics")


class Topics:
    """The topics of one application, as they are on the cluster."""

    def __init__(
        self,
        topology: Topology,
        names: Names,
        admin: Admin,
        settings: WorkerSettings,
    ) -> None:
        self._topology = topology
        self._names = names
        self._admin = admin
        self._timeout_ms = settings.request_timeout_ms
        # name on the broker -> bare name
        self._external = {
            names.topic(topic): topic for topic in (*topology.source_topics, *topology.sink_topics)
        }
        dead_letters = settings.task.dead_letter_topic
        if dead_letters is not None:
            self._external[dead_letters] = dead_letters
        self._wanted: tuple[TopicSpec, ...] = ()

    def prepare(self) -> Partitions:
        """Check everything and create what is missing of our own.

        :raises TopicError: if somebody else's topics are missing, or ours do not fit.
        :raises RetriableError: if the cluster did not answer, or what was created is not yet there.
        """
        counts = self._external_counts()
        partitions = partition_counts(self._topology, counts)
        wanted = internal_topics.plan(self._topology, self._names, partitions)
        found = self._admin.partitions([spec.name for spec in wanted], self._timeout_ms)
        there = [spec for spec in wanted if found.get(spec.name) is not None]
        because = _because(counts)
        settings = self._admin.settings([spec.name for spec in there], self._timeout_ms)
        problems = [
            *internal_topics.count_problems(wanted, found, because),
            *internal_topics.setting_problems(wanted, settings),
        ]
        if problems:
            raise TopicError("; ".join(problems))
        for warning in internal_topics.setting_warnings(wanted, settings):
            _log.warning(warning)
        missing = [spec for spec in wanted if found.get(spec.name) is None]
        if missing:
            _log.info("internal topics are created", topics=[spec.name for spec in missing])
            self._admin.create(missing, self._timeout_ms)
            found = self._admin.partitions([spec.name for spec in missing], self._timeout_ms)
            if absent := [name for name, count in found.items() if count is None]:
                raise RetriableError(f"created topics are not there yet: {', '.join(absent)}")
            # Somebody else may have been faster, with other numbers.
            if problems := [*internal_topics.count_problems(missing, found, because)]:
                raise TopicError("; ".join(problems))
        self._wanted = (
            *(TopicSpec(self._names.topic(t), n, {}) for t, n in counts.items()),
            *wanted,
        )
        return partitions

    def recheck(self) -> None:
        """Ask the partition counts again.

        :raises TopicError: if one of them has changed since ``prepare``, or a topic is gone.
        """
        found = self._admin.partitions([spec.name for spec in self._wanted], self._timeout_ms)
        if absent := sorted(name for name, count in found.items() if count is None):
            raise TopicError(
                f"topics were deleted under a running application: {', '.join(absent)}"
            )
        changed = [
            f"{spec.name} had {spec.partitions} partitions and has {found[spec.name]}"
            for spec in self._wanted
            if found[spec.name] != spec.partitions
        ]
        if changed:
            raise TopicError(
                f"partition counts changed under a running application: {'; '.join(changed)}; "
                "keys would be counted where their state is not"
            )

    def _external_counts(self) -> dict[str, int]:
        found = self._admin.partitions(self._external, self._timeout_ms)
        missing = sorted(name for name in self._external if found.get(name) is None)
        if missing:
            raise TopicError(f"missing topics: {', '.join(missing)}; create them")
        return {
            bare: count
            for name, bare in self._external.items()
            if (count := found[name]) is not None
        }


def _because(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{topic} has {count}" for topic, count in sorted(counts.items()))
