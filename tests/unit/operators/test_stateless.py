"""map, filter, flat_map and their kind; split and merge: rows with their time and headers."""

from collections.abc import Callable
from typing import Any

import pytest

from streamcore import STR, Consumed, KStream, Produced, StreamsBuilder
from streamcore.testing.driver import TopologyTestDriver

Build = Callable[[KStream], KStream]
LINES = [("a", "x y", 3), ("b", "", 1), (None, "z", 2)]

CASES: dict[str, tuple[Build, list[tuple[Any, Any, int]]]] = {
    "map": (
        lambda s: s.map(lambda k, v: (v, k)),
        [("x y", "a", 3), ("", "b", 1), ("z", None, 2)],
    ),
    "map_values": (
        lambda s: s.map_values(lambda v: v + "!"),
        [("a", "x y!", 3), ("b", "!", 1), (None, "z!", 2)],
    ),
    "filter": (lambda s: s.filter(lambda k, v: bool(v)), [("a", "x y", 3), (None, "z", 2)]),
    "filter_not": (lambda s: s.filter_not(lambda k, v: bool(v)), [("b", "", 1)]),
    "filter_all": (lambda s: s.filter(lambda k, v: False), []),
    "flat_map": (
        lambda s: s.flat_map(lambda k, v: [(w, k) for w in v.split()]),
        [("x", "a", 3), ("y", "a", 3), ("z", None, 2)],
    ),
    "flat_map_values": (
        lambda s: s.flat_map_values(str.split),
        [("a", "x", 3), ("a", "y", 3), (None, "z", 2)],
    ),
    "flat_map_of_generators": (
        lambda s: s.flat_map_values(lambda v: (w for w in v.split())),
        [("a", "x", 3), ("a", "y", 3), (None, "z", 2)],
    ),
    "select_key": (
        lambda s: s.select_key(lambda k, v: v[:1]),
        [("x", "x y", 3), ("", "", 1), ("z", "z", 2)],
    ),
    "peek": (lambda s: s.peek(lambda k, v: None), LINES),
}


def to_out(stream: KStream) -> None:
    stream.to("out", Produced(key=STR, value=STR))


@pytest.mark.parametrize("batch_rows", [1, 100])
@pytest.mark.parametrize("name", CASES)
def test_each_row_gives_what_it_should_with_time_and_headers(name: str, batch_rows: int) -> None:
    build, expected = CASES[name]
    builder = StreamsBuilder()
    to_out(build(builder.stream("in", Consumed(key=STR, value=STR))))
    with TopologyTestDriver(builder.build(), batch_rows=batch_rows) as driver:
        driver.auto_run = False
        for key, value, at_ms in LINES:
            headers = ((str(at_ms), b"h"),)
            driver.input("in").pipe(key, value, at_ms=at_ms, headers=headers)
        driver.run()
        records = driver.output("out").read()
        assert [(r.key, r.value, r.stamp_ms) for r in records] == expected
        assert all(r.headers == ((str(r.stamp_ms), b"h"),) for r in records)


def test_peek_sees_each_row_once() -> None:
    seen: list[Any] = []
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key=STR, value=STR))
    to_out(stream.peek(lambda key, value: seen.append((key, value))))
    with TopologyTestDriver(builder.build()) as driver:
        for key, value, at_ms in LINES:
            driver.input("in").pipe(key, value, at_ms=at_ms)
    assert seen == [(key, value) for key, value, _ in LINES]


@pytest.mark.parametrize("default", [True, False])
def test_each_row_goes_to_the_first_branch_that_wants_it(default: bool) -> None:
    builder = StreamsBuilder()
    split = (
        builder.stream("in", Consumed(key=STR, value=STR))
        .split("by-")
        .branch(lambda _key, value: "x" in value, "x")
        .branch(lambda _key, value: "y" in value, "y")
    )
    branches = split.default_branch("rest") if default else split.no_default_branch()
    for name, stream in branches.items():
        stream.to(name, Produced(key=STR, value=STR))
    with TopologyTestDriver(builder.build()) as driver:
        driver.auto_run = False
        for value in ("x", "xy", "y", "z", "x2", "w"):
            driver.input("in").pipe("k", value, at_ms=1)
        driver.run()
        found = {name: [r.value for r in driver.output(name).read()] for name in branches}
    rest = {"by-rest": ["z", "w"]} if default else {}
    assert found == {"by-x": ["x", "xy", "x2"], "by-y": ["y"]} | rest


def test_a_stream_may_go_to_several_ends_each_with_all_rows() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key=STR, value=STR))
    stream.map_values(str.upper).to("upper", Produced(key=STR, value=STR))
    stream.to("same", Produced(key=STR, value=STR))
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe("k", "v", at_ms=1)
        assert [r.value for r in driver.output("upper").read()] == ["V"]
        assert [r.value for r in driver.output("same").read()] == ["v"]
