"""Processor: a step that users write themselves, and what it may ask of the engine.

One processor object serves one task; it is called by one thread, one record at a time, between
``init`` and ``close``. What it keeps in its own fields is lost when the task moves; what it keeps
in stores is not.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, Protocol

from streamcore.model import Headers, TaskId

Clock = Literal["stream", "wall"]
"""Of a schedule: event time (the task's watermark) or the clock on the wall."""


class Scheduled(Protocol):
    """A schedule that can be ended."""

    def cancel(self) -> None:
        """End it; the callback is not called again. Twice is harmless."""


class ProcessorContext(Protocol):
    """What a processor may ask. Facts of the record are those of the one being processed; within a
    scheduled callback there is no record: partition and offset are -1, topic and headers empty.
    """

    @property
    def task_id(self) -> TaskId: ...

    @property
    def topic(self) -> str:
        """The topic of the record, as the topology names it."""

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int:
        """The record's own offset (-1 where rows no longer stand for one record)."""

    @property
    def stamp_ms(self) -> int:
        """The record's timestamp; within a scheduled callback the time that it was given."""

    @property
    def headers(self) -> Headers: ...

    @property
    def watermark_ms(self) -> int:
        """Event time that every upstream partition has passed; -1 when there is none yet."""

    @property
    def now_ms(self) -> int:
        """Wall-clock time, as read once for the batch."""

    def forward(
        self,
        key: Any,
        value: Any,
        stamp_ms: int | None = None,
        headers: Headers | None = None,
        child: str | None = None,
    ) -> None:
        """Send a record to all child nodes, or to ``child``.

        ``stamp_ms`` and ``headers`` are the current record's unless given. A timestamp older than
        the current one by more than the ``hold_ms`` of ``process`` may come late downstream.
        """

    def store(self, name: str) -> Any:
        """Return a store that was connected with ``process(stores=...)``.

        :raises KeyError: if that store is not connected to this processor.
        """

    def schedule(
        self, interval_ms: int, clock: Clock, callback: Callable[[int], None]
    ) -> Scheduled:
        """Call ``callback(time_ms)`` every ``interval_ms`` of event time or wall-clock time.

        Event time: aligned to 0, first as soon as there is a watermark. Wall clock: first after one
        interval. After a gap it is called once. Calls come between records, never within one.
        """


class Processor(ABC):
    """Base of users' processors; ``process`` is the one method that must be written.

    >>> class Shout(Processor):
    ...     def process(self, key, value):
    ...         self.context.forward(key, value.upper())
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Get ready: fetch stores, set schedules. Restored stores are complete by now."""
        self.context = context

    @abstractmethod
    def process(self, key: Any, value: Any) -> None:
        """Handle one record; the context knows the rest of it."""

    def close(self) -> None:  # noqa: B027  # most need none
        """Let go of what ``init`` took. Stores may not be used any more."""
