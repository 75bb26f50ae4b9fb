"""Blueprint: what every task of an application is built from, and which tasks there are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from streamcore.model import TaskId, TopicPartition
from streamcore.runtime.settings import WorkerSettings
from streamcore.state.engine import Engine
from streamcore.task import Task, build_task
from streamcore.topology.graph import Partitions, SubTopology, Topology
from streamcore.topology.naming import Names
from streamcore.topology.nodes import StoreSpec


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What every task of an application is built from."""

    topology: Topology
    names: Names
    counts: Partitions
    settings: WorkerSettings

    def inputs(self, sub_topology: SubTopology) -> tuple[str, ...]:
        """Return the topics that a sub-topology reads, by their names on the broker."""
        return (
            *(self.names.topic(topic) for topic in sub_topology.source_topics),
            *(self.names.internal(topic) for topic in sub_topology.repartition_sources),
        )

    def readers(self) -> dict[str, SubTopology]:
        """Return who reads each topic."""
        return {
            topic: sub_topology
            for sub_topology in self.topology.sub_topologies
            for topic in self.inputs(sub_topology)
        }

    def tasks(self) -> dict[TaskId, tuple[TopicPartition, ...]]:
        """Return every task of the application with the partitions that it reads.

        A task reads the partition of its number of each topic of its sub-topology that has one.
        """
        found: dict[TaskId, tuple[TopicPartition, ...]] = {}
        for sub in self.topology.sub_topologies:
            widths = {self.names.topic(topic): self.counts.of(topic) for topic in sub.source_topics}
            widths |= {
                self.names.internal(topic): self.counts.of(topic)
                for topic in sub.repartition_sources
            }
            for number in range(self.counts.tasks[sub.id]):
                found[TaskId(sub.id, number)] = tuple(
                    TopicPartition(topic, number)
                    for topic, width in widths.items()
                    if number < width
                )
        return found

    def offset_resets(self) -> dict[str, str]:
        """Return where each topic begins without a committed offset: earliest, latest or error.

        Internal topics always begin at the earliest: whatever is in there, we wrote.
        """
        resets: dict[str, str] = {}
        for sub_topology in self.topology.sub_topologies:
            for source in sub_topology.sources:
                for topic in source.topics:
                    if source.internal:
                        resets[self.names.internal(topic)] = "earliest"
                    else:
                        resets[self.names.topic(topic)] = (
                            source.offset_reset or self.settings.offset_reset
                        )
        return resets

    def stores(self, task: TaskId) -> tuple[StoreSpec, ...]:
        """Return the stores of a task."""
        return self._sub_topology(task).stores

    def changelogs(self, tasks: Iterable[TaskId]) -> set[TopicPartition]:
        """Return the changelog partitions of these tasks, those that are ours: a table's source
        topic is none of them.
        """
        return {
            TopicPartition(self.names.internal(spec.changelog), task.partition)
            for task in tasks
            for spec in self._sub_topology(task).changelogged
        }

    def keepers(self) -> frozenset[TaskId]:
        """Return the tasks with a changelog of their own."""
        return frozenset(task for task in self.tasks() if self._sub_topology(task).changelogged)

    def feeders(self) -> dict[TaskId, frozenset[TopicPartition]]:
        """Return the tasks whose output comes to a keeper through repartition topics, each with
        the changelog partitions that it may come to.
        """
        found: dict[TaskId, frozenset[TopicPartition]] = {}
        tasks = self.tasks()
        for sub in self.topology.sub_topologies:
            reached = self._behind(sub)
            logs = frozenset(self.changelogs(t for t in tasks if t.sub_topology in reached))
            if logs:
                found |= {task: logs for task in tasks if task.sub_topology == sub.id}
        return found

    def outlets(self, task: TaskId) -> tuple[TopicPartition, ...]:
        """Return the partitions of the repartition topics to which a task writes."""
        return tuple(
            TopicPartition(self.names.internal(topic), number)
            for topic in self._sub_topology(task).repartition_sinks
            for number in range(self.counts.of(topic))
        )

    def stateful(self) -> frozenset[TaskId]:
        """Return the tasks whose state is in a log, so that another worker can follow it."""
        return frozenset(
            task
            for task in self.tasks()
            if self._sub_topology(task).changelogged or self._sub_topology(task).table_sources
        )

    def record_partition(self) -> TopicPartition | None:
        """Return the changelog partition on which the group keeps its record, if there is one."""
        logs = self.changelogs(self.tasks())
        return min(logs, key=lambda tp: (tp.partition, tp.topic)) if logs else None

    def outputs(self) -> set[TopicPartition]:
        """Return every partition that the application writes."""
        counts = self.counts
        widths = {self.names.topic(t): counts.of(t) for t in self.topology.sink_topics}
        internal = (*counts.repartitions, *counts.changelogs)
        widths |= {self.names.internal(topic): counts.of(topic) for topic in internal}
        return {TopicPartition(topic, n) for topic, width in widths.items() for n in range(width)}

    def build(self, task: TaskId, engines: Mapping[str, Engine]) -> Task:
        """Return a task in CREATED over the engines of its stores."""
        return build_task(
            self.topology,
            self._sub_topology(task),
            task,
            self.names,
            self.counts,
            engines,
            replace(self.settings.task, commit_interval_ms=self.settings.commit_interval_ms),
        )

    def _behind(self, sub_topology: SubTopology) -> set[int]:
        """Return the ids of the sub-topologies that can be reached through repartition topics."""
        reached: set[int] = set()
        ahead = [sub_topology]
        while ahead:
            written = set(ahead.pop().repartition_sinks)
            for sub in self.topology.sub_topologies:
                if written & set(sub.repartition_sources) and sub.id not in reached:
                    reached.add(sub.id)
                    ahead.append(sub)
        return reached

    def _sub_topology(self, task: TaskId) -> SubTopology:
        return self.topology.sub_topologies[task.sub_topology]
