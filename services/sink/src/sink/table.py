"""The tables of the sink and everything that is SQL.

``windowed_counts`` has one row for each word and window; its ``source_`` columns say which record
the count came from. ``source_positions`` has one row for each partition that an application reads:
how far, and who owns it (``epoch``, one more at each change of owner).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    Connection,
    DateTime,
    Index,
    Insert,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Select,
    Table,
    Text,
    Update,
    and_,
    bindparam,
    column,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert

METADATA: Final = MetaData()

COUNTS: Final = Table(
    "windowed_counts",
    METADATA,
    Column("word", Text, nullable=False),
    Column("window_start", DateTime(timezone=True), nullable=False),
    Column("window_end", DateTime(timezone=True), nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Column("source_topic_id", Text, nullable=False),
    Column("source_partition", Integer, nullable=False),
    Column("source_offset", BigInteger, nullable=False),
    PrimaryKeyConstraint("word", "window_start", "window_end", name="windowed_counts_pkey"),
)
Index("windowed_counts_newest", COUNTS.c.window_start.desc(), COUNTS.c.count.desc())

POSITIONS: Final = Table(
    "source_positions",
    METADATA,
    Column("application", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("topic_id", Text, nullable=False),
    Column("next_offset", BigInteger),  # null: nothing of this topic was committed yet
    Column("epoch", BigInteger, nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("application", "topic", "partition", name="source_positions_pkey"),
)

TIME_MAX_MS: Final = 253_402_300_799_999
"""End of the year 9999: PostgreSQL goes on, but most who read from it do not."""


@dataclass(frozen=True, slots=True)
class Place:
    """A partition, as one application reads it."""

    application: str
    topic: str
    partition: int

    @property
    def columns(self) -> Mapping[str, Any]:
        return {
            "application": self.application,
            "topic": self.topic,
            "partition": self.partition,
        }


@dataclass(frozen=True, slots=True)
class Held:
    """What the table holds about a partition."""

    topic_id: str
    next_offset: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows to write, by column, sorted by key, no key twice; all from one partition."""

    topic_id: str
    partition: int
    words: Sequence[str]
    starts_ms: Sequence[int]
    ends_ms: Sequence[int]
    counts: Sequence[int]
    offsets: Sequence[int]


def claim(connection: Connection, place: Place) -> Held:
    """Become the owner of a partition: whoever was it finds another epoch and may write no more."""
    row = connection.execute(_CLAIM, place.columns).one()
    return Held(row.topic_id, row.next_offset, row.epoch)


def forget(connection: Connection, place: Place, topic_id: str) -> None:
    """Begin anew with another topic of the same name."""
    connection.execute(_MOVE, {**_where(place), "new_topic_id": topic_id, "new_offset": None})


def held(connection: Connection, place: Place) -> Held | None:
    """Return what is held, and keep others from changing it until the transaction ends."""
    row = connection.execute(_LOCK, place.columns).one_or_none()
    return None if row is None else Held(row.topic_id, row.next_offset, row.epoch)


def move(connection: Connection, place: Place, topic_id: str, next_offset: int) -> None:
    """Note how far the partition was read."""
    connection.execute(
        _MOVE, {**_where(place), "new_topic_id": topic_id, "new_offset": next_offset}
    )


def upsert(connection: Connection, rows: Counts) -> None:
    """Write the rows in one statement; what came from a later record of the partition stays."""
    connection.execute(
        _UPSERT,
        {
            "topic_id": rows.topic_id,
            "partition": rows.partition,
            "words": rows.words,
            "starts_ms": rows.starts_ms,
            "ends_ms": rows.ends_ms,
            "counts": rows.counts,
            "offsets": rows.offsets,
        },
    )


# --- statements -------------------------------------------------------------------------------


def _upsert() -> Insert:
    """Arrays instead of VALUES: one text and a handful of parameters, however many rows."""
    texts, numbers = ARRAY(Text), ARRAY(BigInteger)
    rows = (
        func.unnest(
            bindparam("words", type_=texts),
            bindparam("starts_ms", type_=numbers),
            bindparam("ends_ms", type_=numbers),
            bindparam("counts", type_=numbers),
            bindparam("offsets", type_=numbers),
        )
        .table_valued(
            column("word", Text),
            column("start_ms", BigInteger),
            column("end_ms", BigInteger),
            column("count", BigInteger),
            column("at_offset", BigInteger),
        )
        .render_derived(name="new")
    )
    new = insert(COUNTS).from_select(
        [
            "word", "window_start", "window_end", "count", "updated_at",
            "source_topic_id", "source_partition", "source_offset",
        ],
        select(
            rows.c.word,
            func.to_timestamp(rows.c.start_ms / 1000.0),
            func.to_timestamp(rows.c.end_ms / 1000.0),
            rows.c.count,
            func.now(),
            bindparam("topic_id", type_=Text),
            bindparam("partition", type_=Integer),
            rows.c.at_offset,
        ),
        include_defaults=False,
    )  # fmt: skip
    written = ("count", "updated_at", "source_topic_id", "source_partition", "source_offset")
    old, excluded = COUNTS.c, new.excluded
    newer = or_(
        old.source_partition != excluded.source_partition,
        old.source_offset < excluded.source_offset,
        and_(  # an unknown id is taken for the same topic
            old.source_topic_id != excluded.source_topic_id,
            old.source_topic_id != "",
            excluded.source_topic_id != "",
        ),
    )
    return new.on_conflict_do_update(
        index_elements=[old.word, old.window_start, old.window_end],
        set_={name: excluded[name] for name in written},
        where=newer,
    )


def _claim() -> Any:
    new = insert(POSITIONS).values(
        application=bindparam("application"),
        topic=bindparam("topic"),
        partition=bindparam("partition"),
        topic_id="",
        next_offset=None,
        epoch=1,
        updated_at=func.now(),
    )
    return new.on_conflict_do_update(
        index_elements=list(POSITIONS.primary_key.columns),
        set_={"epoch": POSITIONS.c.epoch + 1, "updated_at": func.now()},
    ).returning(POSITIONS.c.topic_id, POSITIONS.c.next_offset, POSITIONS.c.epoch)


def _lock() -> Select[Any]:
    wanted = POSITIONS.c
    return (
        select(wanted.topic_id, wanted.next_offset, wanted.epoch)
        .where(
            wanted.application == bindparam("application"),
            wanted.topic == bindparam("topic"),
            wanted.partition == bindparam("partition"),
        )
        .with_for_update()
    )


def _move() -> Update:
    moved = POSITIONS.c
    return (
        update(POSITIONS)
        .where(
            moved.application == bindparam("at_application"),
            moved.topic == bindparam("at_topic"),
            moved.partition == bindparam("at_partition"),
        )
        .values(
            topic_id=bindparam("new_topic_id"),
            next_offset=bindparam("new_offset"),
            updated_at=func.now(),
        )
    )


def _where(place: Place) -> dict[str, Any]:
    return {f"at_{name}": value for name, value in place.columns.items()}


_UPSERT: Final = _upsert()
_CLAIM: Final = _claim()
_LOCK: Final = _lock()
_MOVE: Final = _move()
