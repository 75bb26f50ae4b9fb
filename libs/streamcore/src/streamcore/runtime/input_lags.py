"""InputLags: how far the group is behind in the partitions that this worker owns.

Their ends come with what is fetched, so mostly nobody is asked. The broker is asked only where that
tells nothing: of a partition that is not read yet (its task restores), and of one that is behind
and not fetched (its rows wait here, and more pile up there).
"""

from collections.abc import Mapping

from streamcore.errors import StreamsError
from streamcore.model import TopicPartition
from streamcore.runtime.ports import Admin, Consumer

FIRST_ASK_MS = 2_000
"""So long after it was said what we own the broker is not asked: the first fetch is under way."""

ASK_MS = 10_000
"""How often the broker is asked at most."""

ANSWER_MS = 250
"""What a question may take: the tasks that run here stand still meanwhile."""


class InputLags:
    """Reads the lags of one worker."""

    def __init__(self, admin: Admin, timeout_ms: int) -> None:
        self._admin = admin
        self._timeout_ms = min(ANSWER_MS, timeout_ms)
        self._ends: dict[TopicPartition, int] = {}
        self._fetched: dict[TopicPartition, int] = {}
        self._ask_at_ms: int | None = None

    def forget(self) -> None:
        """The partitions are others', or are read anew."""
        self._ends, self._fetched, self._ask_at_ms = {}, {}, None

    def read(
        self, committed: Mapping[TopicPartition, int], consumer: Consumer, now_ms: int
    ) -> dict[TopicPartition, int]:
        """Return how far the end of each partition is from what is committed, where it is known."""
        known = consumer.high_watermarks(committed)
        news = {tp: end for tp, end in known.items() if self._fetched.get(tp) != end}
        self._fetched |= news
        self._ends |= news
        self._ask([tp for tp, at in committed.items() if self._doubtful(tp, at, news)], now_ms)
        return {
            tp: max(0, self._ends[tp] - offset)
            for tp, offset in committed.items()
            if tp in self._ends
        }

    def _doubtful(
        self, tp: TopicPartition, offset: int, news: Mapping[TopicPartition, int]
    ) -> bool:
        end = self._ends.get(tp)
        return end is None or (tp not in news and end > offset)

    def _ask(self, partitions: list[TopicPartition], now_ms: int) -> None:
        if self._ask_at_ms is None:
            self._ask_at_ms = now_ms + FIRST_ASK_MS
        if not partitions or now_ms < self._ask_at_ms:
            return
        self._ask_at_ms = now_ms + ASK_MS
        try:
            self._ends |= self._admin.offsets(partitions, "latest", self._timeout_ms)
        except StreamsError:
            return  # the old ones tell more than nothing, and whoever must ask will say why
