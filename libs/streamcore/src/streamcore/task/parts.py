"""What a task is made of, and how it describes its changelogs."""

from collections.abc import Mapping
from dataclasses import dataclass

from streamcore.model import NO_TIME_MS, Position, TopicPartition
from streamcore.operators.base import Drops, Outbox
from streamcore.state.build import Store
from streamcore.task.compile import Pipeline
from streamcore.topology.nodes import Source, StoreSpec


@dataclass(frozen=True, slots=True)
class ChangelogState:
    """A store's changelog partition. ``until_committed``: it is a source topic, and restoring ends
    where the group has committed, not at the end of the log. ``watermark_ms`` lets windows expire;
    ``moved_ms`` is when it last moved, by the wall clock, 0 where nobody knows.
    """

    store: str
    spec: StoreSpec
    position: Position | None
    until_committed: bool = False
    watermark_ms: int = NO_TIME_MS
    moved_ms: int = 0


@dataclass(slots=True)
class TaskParts:
    """What build_task puts together for a task."""

    inputs: Mapping[TopicPartition, Source]
    pipeline: Pipeline
    stores: Mapping[str, Store]
    changelogs: Mapping[TopicPartition, str]  # partition -> store
    source_changelogs: Mapping[TopicPartition, str]  # the same for tables read from a topic
    upstream_tasks: Mapping[TopicPartition, int]
    outbox: Outbox
    drops: Drops
