"""build_task: the only door to a Task, for workers and for the test driver alike."""

from collections import Counter
from collections.abc import Mapping

from streamcore.errors import TopologyError
from streamcore.model import TaskId, TopicPartition
from streamcore.operators.base import Drops, Outbox
from streamcore.state.build import build_store
from streamcore.state.engine import Engine
from streamcore.task import metadata
from streamcore.task.compile import Surroundings, compile_pipeline, sources_of
from streamcore.task.config import TaskConfig
from streamcore.task.parts import TaskParts
from streamcore.task.task import Task
from streamcore.topology.graph import Partitions, SubTopology, Topology
from streamcore.topology.naming import Names


def build_task(
    topology: Topology,
    sub_topology: SubTopology,
    task_id: TaskId,
    names: Names,
    counts: Partitions,
    engines: Mapping[str, Engine],
    config: TaskConfig,
) -> Task:
    """Return a task in CREATED over these engines (one per store of the sub-topology).

    :raises TopologyError: if the topology cannot run, or its offset metadata could grow too large.
    """
    outbox: Outbox = []
    drops: Drops = Counter()
    specs = sub_topology.stores
    cache_bytes = _cache_share(topology, counts, config.cache_max_bytes)
    stores = {spec.name: build_store(spec, engines[spec.name], cache_bytes) for spec in specs}
    pipeline = compile_pipeline(
        Surroundings(topology, sub_topology, task_id, names, counts, config, stores, outbox, drops)
    )
    sources = sources_of(sub_topology, names)
    inputs = {
        TopicPartition(topic, task_id.partition): source
        for topic, source in sources.items()
        if task_id.partition < counts.of(_bare(source.topics, topic, names))
    }
    changelogs = {
        TopicPartition(names.internal(spec.changelog), task_id.partition): spec.name
        for spec in sub_topology.changelogged
    }
    writers = {topic: sub.id for sub in topology.sub_topologies for topic in sub.repartition_sinks}
    if looped := [t for t in sub_topology.repartition_sources if writers[t] == sub_topology.id]:
        raise TopologyError(
            f"repartition topic {looped[0]!r} is read by the sub-topology that writes it, so its "
            "time would wait for itself; do not merge a stream with what was grouped from it"
        )
    upstream = {
        at: counts.tasks[writers[source.topics[0]]]
        for at, source in inputs.items()
        if source.internal
    }
    for at, tasks in upstream.items():
        metadata.check_size(at.topic, tasks, len(pipeline.keepers))
    parts = TaskParts(
        inputs=inputs,
        pipeline=pipeline,
        stores=stores,
        changelogs=changelogs,
        source_changelogs={
            TopicPartition(names.topic(topic), task_id.partition): store
            for store, topic in sub_topology.table_sources.items()
        },
        upstream_tasks=upstream,
        outbox=outbox,
        drops=drops,
    )
    return Task(task_id, parts, config)


def _cache_share(topology: Topology, counts: Partitions, cache_max_bytes: int) -> int:
    """Return what one store may keep for reading: half of the limit, if one worker has all tasks.

    The other half is for what changed since the last commit.
    """
    stores = sum(counts.tasks[sub.id] * len(sub.stores) for sub in topology.sub_topologies)
    return cache_max_bytes // 2 // max(1, stores)


def _bare(topics: tuple[str, ...], topic: str, names: Names) -> str:
    return next(t for t in topics if topic in (names.topic(t), names.internal(t)))
