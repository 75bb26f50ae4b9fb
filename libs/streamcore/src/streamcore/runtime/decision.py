"""The record of who owns what: a decision as a short text that fits beside a committed offset.

It is read by whoever comes next, perhaps written by another version, perhaps damaged: what cannot
be read counts as no record, which costs stickiness and nothing else.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from streamcore.model import TaskId

LENGTH_MAX = 4_000
"""A broker takes 4,096 bytes of metadata by default (``offset.metadata.max.bytes``)."""

_START = "sc1:"
_UNPACKED_MAX_BYTES = 1_000_000
_NUMBER_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Decision:
    """Who owns each task and who stands by, by process names; ``key`` says for which list."""

    key: str
    owners: Mapping[TaskId, str]
    standbys: Mapping[TaskId, tuple[str, ...]]
    """By task; one without any may be left out."""


def encode(decision: Decision) -> str | None:
    """Return the decision as printable ASCII, None if it would be longer than ``LENGTH_MAX``."""
    tasks = sorted(decision.owners)
    standbys = [decision.standbys.get(task, ()) for task in tasks]
    owners = [decision.owners[task] for task in tasks]
    names = sorted({*owners, *(name for row in standbys for name in row)})
    index = {name: number for number, name in enumerate(names)}
    packed = {
        "key": decision.key,
        "names": names,
        "subs": _steps([task.sub_topology for task in tasks]),
        "partitions": _steps([task.partition for task in tasks]),  # mostly 1: packs to nothing
        "owners": [index[name] for name in owners],
        "standbys": [[index[name] for name in row] for row in standbys],
    }
    text = json.dumps(packed, separators=(",", ":"))
    coded = _START + base64.b85encode(zlib.compress(text.encode(), 9)).decode("ascii")
    return coded if len(coded) <= LENGTH_MAX else None


def decode(text: str) -> Decision | None:
    """Return the decision, None for a text that is not one, or not a whole one."""
    if not text.startswith(_START):
        return None
    try:
        unpack = zlib.decompressobj()
        raw = unpack.decompress(base64.b85decode(text[len(_START) :]), _UNPACKED_MAX_BYTES)
        return _decision(json.loads(raw)) if unpack.eof and not unpack.unused_data else None
    except (ValueError, LookupError, TypeError, zlib.error, RecursionError):
        return None


def _decision(packed: Any) -> Decision:
    names: list[str] = packed["names"]
    if not isinstance(packed["key"], str) or not _are(names, str) or len(set(names)) != len(names):
        raise ValueError("no decision")
    subs, partitions, owners = (_numbers(packed[field]) for field in _COLUMNS)
    tasks = list(map(TaskId, accumulate(subs), accumulate(partitions)))
    if any(after <= before for before, after in pairwise(tasks)) or any(min(t) < 0 for t in tasks):
        raise ValueError("tasks are not in order")
    rows = [_numbers(row) for row in packed["standbys"]]
    if not len(tasks) == len(subs) == len(partitions) == len(owners) == len(rows):
        raise ValueError("columns of different lengths")
    if any(not 0 <= number < len(names) for row in (owners, *rows) for number in row):
        raise ValueError("a name that is not there")
    return Decision(
        key=packed["key"],
        owners={task: names[owner] for task, owner in zip(tasks, owners, strict=True)},
        standbys={
            task: tuple(names[number] for number in row)
            for task, row in zip(tasks, rows, strict=True)
        },
    )


_COLUMNS = ("subs", "partitions", "owners")


def _steps(column: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise((0, *column))]


def _numbers(column: Any) -> list[int]:
    if not _are(column, int) or any(abs(number) > _NUMBER_MAX for number in column):
        raise ValueError("no numbers")
    return list(column)


def _are(column: Any, kind: type) -> bool:
    return isinstance(column, list) and all(type(item) is kind for item in column)
