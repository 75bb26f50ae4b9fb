"""The record of a decision: small, whole, and nothing else is taken for one."""

import base64
import json
import random
import zlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamcore.model import TaskId
from streamcore.runtime.decision import LENGTH_MAX, Decision, decode, encode

SMALL = Decision(
    key="0123456789abcdef",
    owners={TaskId(0, 0): "a.1", TaskId(0, 2): "b.1", TaskId(3, 1): "a.1"},
    standbys={TaskId(0, 0): ("b.1", "c.1"), TaskId(0, 2): (), TaskId(3, 1): ("c.1",)},
)


def test_what_is_written_is_read() -> None:
    text = encode(SMALL)
    assert text is not None
    assert text.isascii()
    assert text.isprintable()
    assert decode(text) == SMALL


def test_tasks_without_standbys_may_be_left_out() -> None:
    text = encode(Decision("k", {TaskId(0, 1): "a.1"}, {}))
    assert text is not None
    assert decode(text) == Decision("k", {TaskId(0, 1): "a.1"}, {TaskId(0, 1): ()})


def test_nothing_decided_is_a_decision() -> None:
    text = encode(Decision("k", {}, {}))
    assert text is not None
    assert decode(text) == Decision("k", {}, {})


names = st.text("abc019.-_~", min_size=1, max_size=12)
ids = st.builds(TaskId, st.integers(0, 9), st.integers(0, 2_000))


@given(
    owners=st.dictionaries(ids, names, max_size=30), others=st.lists(names, max_size=3), key=names
)
def test_any_decision(owners: dict[TaskId, str], others: list[str], key: str) -> None:
    decision = Decision(key, owners, {task: tuple(others) for task in owners})
    text = encode(decision)
    assert text is not None
    assert decode(text) == decision


def large(tasks: int, members: int) -> Decision:
    """A decision that packs as badly as one can: nothing in it follows from the rest."""
    rng = random.Random(1)
    ids = [TaskId(sub, partition) for sub in range(5) for partition in range(tasks // 5)]
    processes = [f"host-{n}.example-worker.{rng.getrandbits(48):012x}" for n in range(members)]
    places = {task: rng.sample(processes, 2) for task in ids}
    return Decision(
        "0123456789abcdef",
        {task: owner for task, (owner, _) in places.items()},
        {task: (standby,) for task, (_, standby) in places.items()},
    )


def test_five_hundred_tasks_fit() -> None:
    text = encode(large(tasks=500, members=30))
    assert text is not None
    assert len(text) <= LENGTH_MAX


def test_what_does_not_fit_is_not_written() -> None:
    assert encode(large(tasks=4_000, members=100)) is None


# --- what is none -----------------------------------------------------------------------------


@given(st.text())
@example("")
@example("sc1:")
@example('{"next":1}')
@example("1,2,3")
def test_other_texts(text: str) -> None:
    assert decode(text) is None
    assert decode("sc1:" + text) is None


def test_any_damage_is_noticed() -> None:
    text = encode(SMALL)
    assert text is not None
    for place in range(len(text)):
        assert decode(text[:place]) is None
        other = "!" if text[place] != "!" else "#"
        # The last letter has bits to spare, which say nothing.
        assert decode(text[:place] + other + text[place + 1 :]) in (None, SMALL)
    assert decode(text + "00000") is None


def packed(**changes: Any) -> str:
    content: dict[str, Any] = {
        "key": "k",
        "names": ["a", "b"],
        "subs": [0, 0],
        "partitions": [0, 1],
        "owners": [0, 1],
        "standbys": [[1], []],
    }
    content.update(changes)
    return written(
        json.dumps({name: value for name, value in content.items() if value is not None})
    )


def written(text: str) -> str:
    return "sc1:" + base64.b85encode(zlib.compress(text.encode())).decode()


def test_the_texts_that_are_spoilt_below_are_sound() -> None:
    tasks = TaskId(0, 0), TaskId(0, 1)
    assert decode(packed()) == Decision(
        "k", {tasks[0]: "a", tasks[1]: "b"}, {tasks[0]: ("b",), tasks[1]: ()}
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"key": None},
        {"key": 1},
        {"names": None},
        {"names": ["a", 1]},
        {"names": ["a", "a"]},
        {"names": {"a": 0, "b": 1}},
        {"names": ["a"]},
        {"subs": [0]},
        {"subs": [0, 0, 0]},
        {"subs": [0, -1]},
        {"subs": "00"},
        {"subs": [0, 10**9]},
        {"partitions": [0, 0]},
        {"partitions": [-1, 1]},
        {"partitions": [0, True]},
        {"partitions": [0, 1.0]},
        {"owners": [0]},
        {"owners": [0, 2]},
        {"owners": [0, -1]},
        {"owners": [0, 1, 1]},
        {"owners": None},
        {"standbys": [[1]]},
        {"standbys": [1, 1]},
        {"standbys": [[2], []]},
        {"standbys": 7},
    ],
)
def test_a_text_with_a_fault_is_none(changes: dict[str, Any]) -> None:
    assert decode(packed(**changes)) is None


@pytest.mark.parametrize("text", ["[]", "7", "null", "{", "[" * 100_000, " " * 5_000_000 + "{}"])
def test_a_text_of_another_kind_is_none(text: str) -> None:
    assert decode(written(text)) is None


def test_a_text_of_another_version_is_none() -> None:
    assert decode(packed().replace("sc1:", "sc2:")) is None


def test_a_text_that_unpacks_without_end_is_none() -> None:
    """Nobody's mistake fills the memory of a worker."""
    assert decode(packed(key=" " * 5_000_000)) is None
