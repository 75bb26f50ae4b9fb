"""InputTopic and OutputTopic: the two ends of a topology under test."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from streamcore.model import Headers
from streamcore.serde.base import Serde
from streamcore.testing.log import Entry, Log


@dataclass(frozen=True, slots=True)
class Record:
    """A decoded record, as a test wants to compare it."""

    key: Any
    value: Any
    stamp_ms: int
    headers: Headers = ()
    partition: int = 0


class InputTopic:
    """Writes records into a source topic and lets the topology run."""

    def __init__(
        self, pipe: Callable[[str, Entry, int | None], None], topic: str, key: Serde, value: Serde
    ) -> None:
        self._pipe = pipe
        self._topic = topic
        self._key = key
        self._value = value

    def pipe(
        self,
        key: Any,
        value: Any,
        *,
        at_ms: int,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Write one record; the partition follows from the key unless given (null key: 0)."""
        entry = Entry(
            self._key.serialize_column([key])[0],
            self._value.serialize_column([value])[0],
            at_ms,
            headers,
        )
        self._pipe(self._topic, entry, partition)

    def pipe_bytes(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        at_ms: int,
        headers: Headers = (),
        partition: int = 0,
    ) -> None:
        """Write one record as it is, decodable or not."""
        self._pipe(self._topic, Entry(key, value, at_ms, headers), partition)


class OutputTopic:
    """Reads what a topology has written to a topic, each record once."""

    def __init__(
        self, partitions: Callable[[], Mapping[int, Log]], key: Serde, value: Serde
    ) -> None:
        self._partitions = partitions
        self._key = key
        self._value = value
        self._read: dict[int, int] = {}

    def read(self) -> list[Record]:
        """Return the committed records that were not read yet, partition by partition."""
        found: list[Record] = []
        for partition, log in self._partitions().items():
            entries = log.committed()
            fresh = entries[self._read.get(partition, 0) :]
            self._read[partition] = len(entries)
            keys = self._key.deserialize_column([entry.key for entry in fresh])
            values = self._value.deserialize_column([entry.value for entry in fresh])
            found += [
                Record(key, value, entry.stamp_ms, entry.headers, partition)
                for key, value, entry in zip(keys, values, fresh, strict=True)
            ]
        return found
