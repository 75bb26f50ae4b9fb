"""What can go wrong, where it happened, and what the engine does next.

::

    StreamsError
    ├── ConfigError                  STOP       settings: every problem in one message
    ├── TopologyError                STOP       a topology that cannot be built or started
    ├── TopicError                   STOP       missing topics, partition counts that do not match
    │   ├── TopicCreationRefusedError
    │   └── MissingTopicsError      somebody else must create them
    ├── RecordError                  STOP       one record; facts: partition, offset
    │   ├── DeserializationError
    │   ├── TimestampError
    │   ├── ProcessingError
    │   └── ProductionError
    ├── MissingRecordsError          STOP       input is gone, the state built from it is not
    ├── UserCodeError                STOP       a timer, or a function called at a commit, failed
    ├── StateDirLockedError          RETRY      another process has the folder
    ├── StateDirError                STOP       no space, no right: the folder is of no use
    ├── StoreDamagedError            REBUILD    with the store's folder set aside and begun anew
    ├── RetriableError               RETRY      the broker did not answer in time
    ├── FetchPositionGoneError       REBUILD    the log no longer holds the position
    ├── TaskCorruptedError           REBUILD    state and memory of a task must be built anew
    ├── UserRetryError               REBUILD    user code asked for another try, however often
    ├── TransactionAbortedError      REBUILD
    ├── NotDeliveredError            REBUILD    the broker did not take records in time
    ├── ProducerFencedError          REBUILD    with a new producer
    ├── TransactionsHangError        STOP       the broker does not decide what it says is decided
    ├── MemberFencedError            REJOIN     we are a zombie: drop everything, join anew
    └── AuthorizationError           STOP       a right is refused
        └── GroupRefusedError                   to take part in the consumer group
            └── MissingGroupError               seen at the start, with the group's bare name
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import ClassVar

from streamcore.model import Refused, TaskId, TopicPartition


class Recovery(Enum):
    """What the worker does about an error."""

    RETRY = auto()  # the same again, later
    REBUILD_TASKS = auto()  # back to the last commit: memory dropped, offsets read anew
    REJOIN_GROUP = auto()  # drop all tasks without a commit, join anew
    STOP = auto()  # nothing that we may do is safe


class StreamsError(Exception):
    """Root of everything that the engine raises for the world's faults (ours are asserts)."""

    recovery: ClassVar[Recovery] = Recovery.STOP


class ConfigError(StreamsError):
    """One or more settings are wrong; ``problems`` has a line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class TopologyError(StreamsError):
    """A topology that cannot work: duplicate names, unknown stores, unequal partition counts."""


class TopicError(StreamsError):
    """Topics are missing or do not fit; the message names them and what to do."""


class TopicCreationRefusedError(TopicError):
    """This client may not create topics; ``topics`` are the ones that somebody must create."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.topics = tuple(topics)
        super().__init__(
            f"the broker refuses to create {', '.join(self.topics)}; create them by hand"
        )


@dataclass(frozen=True, slots=True)
class MissingTopic:
    """A topic that somebody must create: its bare name, its partitions, Kafka's settings for it.

    ``keep_ms``: how long records must be kept at least where a plan deletes by time as well.
    """

    name: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)
    keep_ms: int | None = None


class MissingTopicsError(TopicError):
    """Topics are missing that this client may not create; ``topics`` are all of them.

    ``group`` is the bare name of the consumer group if the broker refuses that as well.
    """

    def __init__(self, topics: Sequence[MissingTopic], group: str | None = None) -> None:
        self.topics = tuple(topics)
        self.group = group
        and_group = "" if group is None else f", and the broker refuses the consumer group {group}"
        super().__init__(
            f"topics are missing: {', '.join(topic.name for topic in self.topics)}{and_group}; "
            "somebody with the right to do so must create them (what all services need together "
            "is told by python -m streamcore plan)"
        )


class MisfitTopicsError(TopicError):
    """Topics of ours have other partitions than they must; ``topics`` say which they must have."""

    def __init__(self, message: str, topics: Sequence[MissingTopic]) -> None:
        self.topics = tuple(topics)
        super().__init__(message)


class RecordError(StreamsError):
    """One record stopped the worker; its offset stays uncommitted."""

    what: ClassVar[str] = "could not be handled"
    setting: ClassVar[str] = "on_error"

    def __init__(self, partition: TopicPartition, offset: int, reason: str) -> None:
        self.partition, self.offset, self.reason = partition, offset, reason
        super().__init__(
            f"record {partition.topic} partition {partition.partition} offset {offset} "
            f"{self.what}: {reason}; repair the producer, "
            f"or set {self.setting} to 'continue' or 'dead-letter'"
        )


class DeserializationError(RecordError):
    what = "cannot be decoded"
    setting = "deserialization_error"


class TimestampError(RecordError):
    what = "has no usable timestamp"
    setting = "timestamp_error"


class ProcessingError(RecordError):
    what = "made a processor fail"
    setting = "processing_error"


class ProductionError(RecordError):
    """Records that we wanted to write were refused; partition and offset may be unknown (-1).

    ``refused`` names them, where the producer finds them out: then all others are written.
    """

    what = "could not be written"
    setting = "production_error"

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        reason: str,
        refused: Sequence[Refused] = (),
    ) -> None:
        super().__init__(partition, offset, reason)
        self.refused = tuple(refused)


class MissingRecordsError(StreamsError):
    """Going on would count records twice or leave some out; ``records`` has a number for each
    input, or changelog, where one is known."""

    def __init__(self, reason: str, records: Mapping[TopicPartition, int]) -> None:
        self.records = dict(records)
        super().__init__(reason)


class UserCodeError(StreamsError):
    """A user's timer or function failed where no single record is to blame: no policy can help."""

    def __init__(self, task: TaskId, where: str, reason: str) -> None:
        self.task, self.where, self.reason = task, where, reason
        super().__init__(f"task {task}: a user's function failed {where}: {reason}")


class StateDirLockedError(StreamsError):
    """Another process holds the folder of this task."""

    recovery = Recovery.RETRY

    def __init__(self, task: TaskId, folder: str) -> None:
        self.task, self.folder = task, folder
        super().__init__(f"task {task}: the state folder {folder} is held by another process")


class StateDirError(StreamsError):
    """The state folder cannot be used; the message says why and what to do."""


class StoreDamagedError(StreamsError):
    """What is stored in a folder cannot be read; opening it again sets it aside and begins anew."""

    recovery = Recovery.REBUILD_TASKS

    def __init__(self, folder: str, reason: str) -> None:
        self.folder, self.reason = folder, reason
        super().__init__(f"the store in {folder} cannot be used: {reason}")


class RetriableError(StreamsError):
    """The broker did not answer, or not yet; the same call may succeed later."""

    recovery = Recovery.RETRY


class FetchPositionGoneError(StreamsError):
    """The log of a partition no longer (or not yet) holds the position we wanted to read."""

    recovery = Recovery.REBUILD_TASKS

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        self.partition, self.offset = partition, offset
        super().__init__(f"{partition} has no offset {offset} any more")


class TaskCorruptedError(StreamsError):
    """Memory or state of some tasks cannot be trusted: they are rebuilt from the last commit."""

    recovery = Recovery.REBUILD_TASKS


class UserRetryError(StreamsError):
    """User code raised what says "the same again, later": half of it may have been done, so all of
    it is done again, from the last commit on and for as long as that takes.
    """

    recovery = Recovery.REBUILD_TASKS

    def __init__(self, task: TaskId, error: StreamsError) -> None:
        self.task = task
        super().__init__(f"task {task}: a user's function raised {type(error).__name__}: {error}")


class TransactionAbortedError(StreamsError):
    """The running transaction can only be aborted."""

    recovery = Recovery.REBUILD_TASKS


class NotDeliveredError(StreamsError):
    """The broker did not acknowledge records in time; they may or may not have been written."""

    recovery = Recovery.REBUILD_TASKS


class ProducerFencedError(StreamsError):
    """The producer is unusable for ever; a new one goes on."""

    recovery = Recovery.REBUILD_TASKS


class TransactionsHangError(StreamsError):
    """Rows of ended transactions stay undecided; ``partitions`` are where."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        self.partitions = tuple(partitions)
        super().__init__(
            f"rows of ended transactions stay undecided in {', '.join(map(str, partitions))}; "
            "start again (it goes on under another id), and if readers stay blocked there, abort "
            "the hanging transaction with the broker's own kafka-transactions tool"
        )


class MemberFencedError(StreamsError):
    """The group has gone on without this member or generation."""

    recovery = Recovery.REJOIN_GROUP


class AuthorizationError(StreamsError):
    """The broker refuses a right; the message names what for."""


class GroupRefusedError(AuthorizationError):
    """The broker refuses us the consumer group."""


class MissingGroupError(GroupRefusedError):
    """The broker refuses the consumer group; ``group`` is its bare name."""

    def __init__(self, group: str) -> None:
        self.group = group
        super().__init__(
            f"the broker refuses the consumer group {group}; "
            "somebody with the right to do so must grant it"
        )
