"""The aggregator with a trial inside: slow work, a slow restore, a kill at a chosen instruction.

Run as a program, `python -m tests.integration.trial_worker`; what it does to itself is said by
variables:

=====================  =====================================================================
TRIAL_WORK_MS          what each word takes
TRIAL_RESTORE_ROWS     most rows of a changelog that one turn reads
TRIAL_RESTORE_ROW_US   what each of them takes
TRIAL_STUCK_AT_START   1: the question that begins its transactions is never answered
TRIAL_KILL_AT          ``<moment>:<n>``: SIGKILL at the nth such moment, once it has counted
=====================  =====================================================================

Moments: ``sent`` (all is with the broker, nothing is committed), ``committed`` (the transaction is,
the stores are not written), ``stored``.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from aggregator.settings import Settings
from streamcore import (
    INT64,
    STR,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    StreamsBuilder,
    Topology,
    tumbling,
    windowed_serde,
)
from streamcore.adapters.kafka_producer import KafkaProducer
from streamcore.app import StreamsApp
from streamcore.model import TopicPartition
from streamcore.runtime.commit import Committer
from streamcore.runtime.outbound import Outbound
from streamcore.runtime.restore import RestoreProgress, Restorer
from streamcore.settings import load


def number(variable: str) -> int:
    return int(os.environ.get(variable, "0"))


def build(settings: Settings) -> Topology:
    """Return the aggregator's topology, with work to do for each word."""
    work_s = number("TRIAL_WORK_MS") / 1_000

    def worked(word: str) -> str:
        time.sleep(work_s)
        return word

    builder = StreamsBuilder()
    words = builder.stream(settings.words_topic, Consumed(key=STR, value=STR))
    (
        (words.map_values(worked) if work_s else words)
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .windowed_by(tumbling(size_ms=settings.window_size_ms, grace_ms=settings.grace_ms))
        .count(Materialized("windowed-counts", retention_ms=settings.retention_ms))
        .to_stream()
        .to(settings.counts_topic, Produced(key=windowed_serde(STR), value=INT64))
    )
    return builder.build()


class SlowRestore:
    """A restore listener that takes its time, and tells what it hears."""

    def __init__(self, row_us: int) -> None:
        self._row_s = row_us / 1_000_000

    def restore_started(
        self, task: object, store: str, partition: object, start: int, end: int
    ) -> None:
        tell(f"trial: restore of {task} starts at {start} of {end}")

    def batch_restored(
        self, task: object, store: str, partition: object, progress: RestoreProgress
    ) -> None:
        time.sleep(progress.rows * self._row_s)

    def restore_ended(self, task: object, store: str, partition: object, rows: int) -> None:
        tell(f"trial: restore of {task} ends, {rows} rows")


def tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def restore_in_small_steps(rows_max: int) -> None:
    step: Callable[..., Any] = Restorer.step

    def small(self: Restorer, rows: int, timeout_ms: int, now_ms: int) -> Any:
        return step(self, min(rows, rows_max), timeout_ms, now_ms)

    replaced: Any = small
    Restorer.step = replaced  # type: ignore[method-assign]


def kill_at(moment: str, count: int) -> None:
    """Have this process killed when it comes to that moment for the nth time since it counts."""
    left = count
    counts = False
    settle: Callable[..., Any] = Committer._settle
    commit: Callable[..., Any] = Outbound.commit_transaction

    def come_to(here: str) -> None:
        nonlocal left
        left -= here == moment and counts
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    def lethal_settle(self: Committer, positions: Mapping[TopicPartition, Any]) -> None:
        nonlocal counts
        settle(self, positions)
        come_to("stored")
        counts = counts or any(tp.topic.endswith("-changelog") for tp in positions)

    def lethal_commit(*arguments: Any) -> None:
        come_to("sent")
        commit(*arguments)
        come_to("committed")

    replaced: tuple[Any, Any] = lethal_settle, lethal_commit
    Committer._settle, Outbound.commit_transaction = replaced  # type: ignore[method-assign]


def stick_at_start() -> None:
    """Have nobody answer the question with which an exactly-once worker begins."""

    def unanswered(*_: object) -> None:
        tell("trial: it is asked")
        time.sleep(600)

    replaced: Any = unanswered
    KafkaProducer.init_transactions = replaced  # type: ignore[method-assign]


def main() -> int:
    settings, config = load(Settings)
    if number("TRIAL_STUCK_AT_START"):
        stick_at_start()
    if rows_max := number("TRIAL_RESTORE_ROWS"):
        restore_in_small_steps(rows_max)
    if moment := os.environ.get("TRIAL_KILL_AT"):
        name, _, count = moment.partition(":")
        kill_at(name, int(count))
    listener = SlowRestore(number("TRIAL_RESTORE_ROW_US"))
    return StreamsApp(build(settings), config, restore_listeners=[listener]).run()


if __name__ == "__main__":
    sys.exit(main())
