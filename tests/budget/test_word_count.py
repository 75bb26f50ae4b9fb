"""The budget of the hot path: Python and C calls for each record of the word count, exactly.

Timings are noise on a shared machine, the number of calls is not. A ceiling that breaks says that
somebody has put work into a loop over rows. Where a change makes it cheaper, lower the ceiling.
"""

import gc
import sys
from collections.abc import Callable

import pytest

from streamcore import (
    INT64,
    STR,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    StreamsBuilder,
    tumbling,
    windowed_serde,
)
from streamcore.model import (
    Fetched,
    Headers,
    OffsetAndMetadata,
    Position,
    Send,
    TaskId,
    TopicPartition,
)
from streamcore.state.memory import MemoryEngine
from streamcore.task import Task, TaskConfig, build_task
from streamcore.topology.graph import partition_counts
from streamcore.topology.naming import Names

ROWS = 10_000
WORDS = 500
NOW_MS = 2_000_000_000_000


def calls_made(run: Callable[[], object]) -> int:
    """Count the calls of Python functions and of C functions, without the collector."""
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def word_count_tasks() -> tuple[Task, Task]:
    builder = StreamsBuilder()
    (
        builder.stream("words", Consumed(key=STR, value=STR))
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .windowed_by(tumbling(size_ms=10_000))
        .count(Materialized("counts"))
        .to_stream()
        .to("out", Produced(key=windowed_serde(STR), value=INT64))
    )
    topology = builder.build()
    counts = partition_counts(topology, {"words": 1, "out": 1})
    tasks = []
    for sub in topology.sub_topologies:
        engines = {spec.name: MemoryEngine() for spec in sub.stores}
        names = Names("", "app")
        task = build_task(topology, sub, TaskId(sub.id, 0), names, counts, engines, TaskConfig())
        task.start({at: OffsetAndMetadata(0) for at in task.inputs}, NOW_MS)
        tasks.append(task)
    splitting, counting = tasks
    return splitting, counting


def words(rows: int, first_ms: int) -> Fetched:
    """Rows in order, a millisecond apart, as a poll brings them."""
    return Fetched(
        TopicPartition("words", 0),
        list(range(rows)),
        [None] * rows,
        [f"word-{row * 7919 % WORDS}".encode() for row in range(rows)],
        [first_ms + row for row in range(rows)],
        None,
        rows,
    )


def received(sends: list[Send], topic: str) -> Fetched:
    """What a reader of the topic's only partition gets."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    stamps_ms: list[int] = []
    headers: list[Headers] = []
    for send in sends:
        if send.topic == topic:
            keys += send.keys
            values += send.values
            stamps_ms += send.stamps_ms
            headers += send.headers or [()] * len(send.keys)
    offsets = list(range(len(keys)))
    return Fetched(
        TopicPartition(topic, 0), offsets, keys, values, stamps_ms, headers, len(offsets)
    )


def run(task: Task, fetched: Fetched) -> None:
    task.accept(fetched)
    while task.process(NOW_MS, 100_000):
        pass


def commit(task: Task) -> list[Send]:
    point = task.cut(NOW_MS)
    sends = task.drain()
    assert point is not None
    ends = {at: Position(1_000_000, "id") for at in point.changelogs}
    task.committed(point, ends)
    return sends + task.drain()


def test_a_record_of_the_first_hop_costs_the_users_function_and_next_to_nothing() -> None:
    """group_by calls the user's function; everything else is a few calls for the batch."""
    splitting, _ = word_count_tasks()
    fetched = words(ROWS, 5_000)
    calls = calls_made(lambda: run(splitting, fetched))
    assert calls <= 1 * ROWS + 100


def test_out_of_order_records_of_the_first_hop_stay_in_the_budget() -> None:
    splitting, _ = word_count_tasks()
    fetched = words(ROWS, 5_000)
    fetched.stamps_ms[1::2] = [at_ms - 3 for at_ms in fetched.stamps_ms[1::2]]
    calls = calls_made(lambda: run(splitting, fetched))
    assert calls <= 4.5 * ROWS + 110  # each second row is asked whether its clock could decide


ONE_WINDOW_MS, TWO_WINDOWS_MS = 10_000, 5_000
"""Where 10,000 rows begin that lie in one window, and in two."""


@pytest.mark.parametrize(
    ("first_ms", "with_headers", "each"),
    [
        (ONE_WINDOW_MS, False, 0),
        (ONE_WINDOW_MS, True, 0),
        (TWO_WINDOWS_MS, False, 2),
        (TWO_WINDOWS_MS, True, 2),
    ],
)
def test_a_record_of_the_second_hop_costs_no_call_unless_windows_mix(
    first_ms: int, with_headers: bool, each: int
) -> None:
    splitting, counting = word_count_tasks()
    run(splitting, words(ROWS, first_ms))
    fetched = received(splitting.drain(), "app-counts-repartition")
    assert fetched.headers is not None
    markers = [row for row, headers in enumerate(fetched.headers) if headers]
    assert markers == [0], "a marker after the start, and rows without headers"
    if with_headers:
        fetched.headers[1:] = [(("trace", b"1"),)] * ROWS
    calls = calls_made(lambda: run(counting, fetched))
    assert calls <= each * ROWS + 180


def test_a_commit_costs_a_few_calls_for_each_changed_count() -> None:
    splitting, counting = word_count_tasks()
    run(splitting, words(ROWS, 5_000))
    run(counting, received(splitting.drain(), "app-counts-repartition"))
    changed = 2 * WORDS  # in two windows
    calls = calls_made(lambda: commit(counting))
    assert calls <= 6 * changed + 260


def test_a_marker_costs_as_much_as_a_batch_and_not_as_a_row() -> None:
    splitting, _ = word_count_tasks()
    run(splitting, words(ROWS, 5_000))
    commit(splitting)
    assert calls_made(lambda: commit(splitting) if splitting.cut(NOW_MS) else None) <= 200
