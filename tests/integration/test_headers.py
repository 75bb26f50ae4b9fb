"""P12 on a real broker: no header vanishes in a hop, none sticks to the next record, restart or no.

The trial of the engine alone, in batches of all sizes, is unit/operators/test_headers.py.
"""

from tests.integration import trials
from tests.integration.harness import Record, Stack, wait_until

PROGRAM = "tests.integration.header_worker"
TRACE = (("trace", b"1"),)
SEVERAL = (("k", b"1"), ("k", b"2"), ("n", None))
LINES = [
    Record(0, 1_000, b"a b", b"k", TRACE),
    Record(0, 1_001, b"c", b"k"),
    Record(0, 1_002, b"d", b"k", SEVERAL),
]
RIGHT = {b"a": (*TRACE, ("added", b"x")), b"b": TRACE, b"c": (), b"d": SEVERAL}


def test_headers_of_four_words_through_two_hops_and_a_restart(stack: Stack) -> None:
    stack.create("lines", "out", partitions=1)
    for turn in (1, 2):
        stack.produce("lines", LINES)
        worker = trials.start_program(stack, PROGRAM, f"-{turn}")
        wait_until(
            lambda done=4 * turn: len(stack.read("out")) == done,  # type: ignore[misc]
            lambda: f"all words; there are {stack.read('out')}",
            alive=[worker],
        )
        stack.stop(worker)
        stack.wipe()
    found = [(record.key, record.headers) for record in stack.read("out")]
    assert found == [*RIGHT.items()] * 2
    changelog = stack.read("headers-last-changelog")
    assert {record.key for record in changelog} == set(RIGHT)
    assert {record.headers for record in changelog} == {()}
    (repartition,) = [
        name.removeprefix(stack.prefix)
        for name in stack.admin.list_topics(timeout=20).topics
        if name.startswith(f"{stack.prefix}headers-") and name.endswith("-repartition")
    ]
    hop = [(r.key, r.headers) for r in stack.read(repartition) if r.key is not None]
    assert [(key, own(headers)) for key, headers in hop] == [*RIGHT.items()] * 2


def own(headers: tuple[tuple[str, bytes | None], ...]) -> tuple[tuple[str, bytes | None], ...]:
    """Leave out what the engine puts beside a user's headers while they are on their way."""
    return tuple(header for header in headers if not header[0].startswith("sc-"))
