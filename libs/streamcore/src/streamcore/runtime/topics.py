"""Topics: are all topics of a topology there, and do they fit? Internal ones are made if not.

No right but to see topics is taken for granted. What is missing at a start and may not be made is
told all at once, together with the group, so that somebody can make it in one go.

Partition counts are asked again at each assignment and now and then: topics that grow under a
running application would send a key to a partition whose state lives elsewhere.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import structlog

from streamcore.errors import (
    GroupRefusedError,
    MisfitTopicsError,
    MissingGroupError,
    MissingTopic,
    MissingTopicsError,
    RetriableError,
    TopicCreationRefusedError,
    TopicError,
)
from streamcore.runtime import internal_topics, outer_topics
from streamcore.runtime.ports import Admin, TopicSpec
from streamcore.runtime.settings import WorkerSettings
from streamcore.topology.graph import Partitions, Topology, partition_counts
from streamcore.topology.naming import Names

_log = structlog.get_logger("streamcore.topics")

ASK_GROUP_MS: Final = 2_000
"""One question about the group; without an answer all is asked again."""


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

        :raises MissingTopicsError: if topics are missing that are not ours, or that we may not
            create; it names all of them, and the group if that is refused as well.
        :raises MissingGroupError: if nothing is missing but the right to the group.
        :raises TopicError, TopologyError: if topics are there that do not fit.
        :raises RetriableError: if the cluster did not answer, or what was created is not yet there.
        """
        found = self._admin.partitions(self._external, self._timeout_ms)
        counts = {
            bare: count
            for name, bare in self._external.items()
            if (count := found[name]) is not None
        }
        group = self._refused_group()
        if len(counts) < len(self._external):
            raise MissingTopicsError(self._all_missing(counts), group)
        partitions = partition_counts(self._topology, counts)
        wanted = internal_topics.plan(self._topology, self._names, partitions)
        hidden = self._make(wanted, _because(counts), group)
        if group is not None:
            raise MissingGroupError(group)
        if hidden:  # so whoever reads this must know what is needed
            _log.warning(
                "settings of internal topics may not be seen, they are not checked",
                topics=hidden,
                changelogs_need=internal_topics.retention_needed(self._topology),
            )
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

    # -- what is there ---------------------------------------------------------------------------

    def _refused_group(self) -> str | None:
        """Return the bare name of the group if the broker refuses it.

        :raises RetriableError: if its coordinator did not answer.
        """
        try:
            view = self._admin.group(self._names.group, min(ASK_GROUP_MS, self._timeout_ms))
        except GroupRefusedError:
            return self._names.bare(self._names.group)
        if view is None:
            raise RetriableError("the coordinator of the consumer group does not answer yet")
        return None

    def _make(self, wanted: Collection[TopicSpec], because: str, group: str | None) -> list[str]:
        """Check the internal topics and create what is missing; return those we may not look at."""
        found = self._admin.partitions([spec.name for spec in wanted], self._timeout_ms)
        there = [spec.name for spec in wanted if found.get(spec.name) is not None]
        settings = self._admin.settings(there, self._timeout_ms)
        problems = [*internal_topics.setting_problems(wanted, settings)]
        self._check_counts(wanted, found, because, problems)
        if problems:
            raise TopicError("; ".join(problems))
        for warning in internal_topics.setting_warnings(self._topology, self._names, settings):
            _log.warning(warning)
        if missing := [spec for spec in wanted if found.get(spec.name) is None]:
            if refused := self._refused(missing, only_ask=False):
                raise MissingTopicsError(self._internal(refused), group)
            _log.info("internal topics are created", topics=[spec.name for spec in missing])
            found = self._admin.partitions([spec.name for spec in missing], self._timeout_ms)
            if absent := [name for name, count in found.items() if count is None]:
                raise RetriableError(f"created topics are not there yet: {', '.join(absent)}")
            # Somebody else may have been faster, with other numbers.
            self._check_counts(missing, found, because)
        return [name for name in there if name not in settings]

    def _check_counts(
        self,
        wanted: Collection[TopicSpec],
        found: Mapping[str, int | None],
        because: str,
        other_problems: Iterable[str] = (),
    ) -> None:
        """Raise MisfitTopicsError if topics that are there have other partitions than wanted."""
        if problems := [*internal_topics.count_problems(wanted, found, because)]:
            misfits = [spec for spec in wanted if found[spec.name] not in {None, spec.partitions}]
            message = "; ".join([*problems, *other_problems])
            raise MisfitTopicsError(message, self._internal(misfits))

    # -- what is not -----------------------------------------------------------------------------

    def _all_missing(self, counts: Mapping[str, int]) -> list[MissingTopic]:
        """Return every topic that somebody else must make, with partitions that will fit.

        Ours are not made yet: their partitions follow from topics that are not there.
        """
        fitting = outer_topics.fitting(self._topology, self._external.values(), counts)
        outer = [
            outer_topics.missing_topic(self._topology, bare, self._names.bare(name), fitting[bare])
            for name, bare in self._external.items()
            if bare not in counts
        ]
        partitions = partition_counts(self._topology, fitting)
        wanted = internal_topics.plan(self._topology, self._names, partitions)
        found = self._admin.partitions([spec.name for spec in wanted], self._timeout_ms)
        absent = [spec for spec in wanted if found[spec.name] is None]
        return [*outer, *self._internal(self._refused(absent, only_ask=True))]

    def _refused(self, missing: Iterable[TopicSpec], *, only_ask: bool) -> list[TopicSpec]:
        """Create the topics, or ask whether we may; return those that we may not."""
        missing = list(missing)
        try:
            self._admin.create(missing, self._timeout_ms, only_ask=only_ask)
        except TopicCreationRefusedError as error:
            return [spec for spec in missing if spec.name in error.topics]
        return []

    def _internal(self, specs: Iterable[TopicSpec]) -> list[MissingTopic]:
        kept_ms = {
            self._names.internal(store.changelog): internal_topics.changelog_keep_ms(store)
            for sub in self._topology.sub_topologies
            for store in sub.changelogged
        }
        return [
            MissingTopic(
                self._names.bare(spec.name),
                spec.partitions,
                spec.settings,
                kept_ms.get(spec.name, internal_topics.REPARTITION_KEEP_MS),
            )
            for spec in specs
        ]


def _because(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{topic} has {count}" for topic, count in sorted(counts.items()))
