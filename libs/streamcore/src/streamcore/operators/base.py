"""Step and Operator: what the compiled pipeline is made of.

A *step* takes rows and passes on what it makes of them; stateless nodes are nothing more. An
*operator* also remembers something between commits. At each commit the task walks its operators
from source to leaf and lets each empty itself downstream (``flush``) and then move its time
forward (``advance``): windows close nowhere else, so nothing closes in front of a value that still
sits in an overlay.
"""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from streamcore.model import Rows, Send
from streamcore.operators.watermark import Mark

Step = Callable[[Rows], None]

Drops = Counter[str]
"""Records that did not go on, counted by reason."""

NULL_KEY = "null_key"
NULL_VALUE = "null_value"
LATE = "late"
WINDOW_CLOSED = "window_closed"
FOREIGN_REPARTITION_RECORD = "foreign_repartition_record"
DESERIALIZATION = "deserialization"
TIMESTAMP = "timestamp"
PROCESSING = "processing"
OUT_OF_ORDER_TABLE = "out_of_order_table"

Outbox = list[Send]
"""What a task wants sent, in the order in which it must be sent."""


class Operator(Protocol):
    """A node with a memory. All calls come from the task, in one thread."""

    def process(self, rows: Rows) -> None:
        """Take rows; they may change the memory and go on at once or at the next ``flush``."""

    def flush(self) -> None:
        """Empty the overlay: changes to the store, results to the next step."""

    def advance(self, mark: Mark, now_ms: int) -> Mark:
        """Let time pass; close, expire, fire. Return the mark that holds behind this operator.

        Called right after ``flush``, once per cut, with a mark that never goes back.
        """

    def committed(self) -> None:
        """What the last cut said is durable now."""

    @property
    def live_entries(self) -> int:
        """How many entries wait in memory for the next ``flush``."""


class Trace:
    """Whether rows have left a mark since it was wiped: in an operator's memory, or in the outbox.

    User code that fails before any did can simply be tried again with fewer rows.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = False

    def before(self, step: Step) -> Step:
        """Return the step of an operator, which may have changed something even if it fails."""

        def traced(rows: Rows) -> None:
            self.left = True
            step(rows)

        return traced

    def after(self, step: Step) -> Step:
        """Return the step of a sink, which sends all rows or, if it fails, none."""

        def traced(rows: Rows) -> None:
            step(rows)
            self.left = True

        return traced


def fan_out(steps: list[Step]) -> Step:
    """Return one step that feeds all of ``steps`` with the same rows, in order."""
    if not steps:
        return _drop
    if len(steps) == 1:
        return steps[0]
    every = tuple(steps)

    def step(rows: Rows) -> None:
        for then in every:
            then(rows)

    return step


def _drop(_rows: Rows) -> None:
    return None
