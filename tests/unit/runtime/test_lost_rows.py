"""Changelogs from which a broker deletes by time: what stops a worker, and what never does."""

from contextlib import suppress

from structlog.testing import capture_logs
from tests.unit.runtime.simulated import START_MS, Cluster
from tests.unit.runtime.test_missing_records import (
    forget_offsets,
    keyed_cluster,
    keyed_count,
    stops,
    write,
)
from tests.unit.runtime.test_standby import COUNTS, LOG, Second

from streamcore.errors import MissingRecordsError
from streamcore.model import TopicPartition
from streamcore.runtime.standby import RENEW_MS
from streamcore.testing.broker import MemoryStateDir

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HARMLESS = "the changelog lost its oldest records; no open window needs them"
GONE_ON = "rows of a changelog are gone; what they counted begins at nothing"


def retention_pass(cluster: Cluster, log: TopicPartition = LOG, keep_ms: int = 2 * DAY_MS) -> int:
    """Delete from the front what is older than that by its own timestamp, as a broker does with
    segments of one record; return where the log begins then.
    """
    held = cluster.broker.log(log)
    oldest_ms = cluster.clock.now_ms() - keep_ms
    young = [r.offset for r in held.records if r.stamp_ms >= oldest_ms and not r.is_marker]
    held.delete_before(min(young, default=held.end))
    return held.start


def counted(cluster: Cluster, stamp_ms: int, words: str = "aab") -> None:
    """A worker counts these and ends; its disk is lost."""
    worker = cluster.worker("a")
    cluster.feed(words, stamp_ms)
    cluster.settle(worker)
    assert worker.stop(cluster.clock.now_ms())


def test_old_records_whose_rows_were_deleted_under_an_open_window_stop_the_worker() -> None:
    cluster = Cluster(partitions=1)
    counted(cluster, START_MS - 4 * DAY_MS)
    gone = retention_pass(cluster)
    assert gone == cluster.broker.log(LOG).end
    cluster.feed("a", START_MS - 4 * DAY_MS)
    error = stops(cluster, cluster.worker("b"))
    assert error.records == {LOG: gone}
    assert str(error).startswith(f"changelog {LOG} does not hold its first {gone} offsets any more")
    assert "'compact' alone" in str(error)
    assert max(cluster.counts().values()) == 2


def test_they_stop_it_too_when_younger_rows_are_left() -> None:
    """The worker had its disk when they were deleted, counted on, and lost it later.

    Tombstones, which come first, have the age of windows that are closed, and prove nothing.
    """
    cluster = Cluster(partitions=1)
    old_ms = (START_MS - 4 * DAY_MS) // 10_000 * 10_000
    worker = cluster.worker("a")
    cluster.feed("aab", old_ms)
    cluster.settle(worker)
    log = cluster.broker.log(LOG)
    closed = next(record.key for record in log.records if record.key is not None)
    gone = retention_pass(cluster)
    log.append(closed, None, old_ms - 3 * DAY_MS)
    cluster.feed("bc", old_ms)
    cluster.settle(worker)
    assert worker.stop(cluster.clock.now_ms())
    assert 0 < gone < log.end
    disk = MemoryStateDir()
    for _ in range(2):  # what the first start had read is not taken for the whole
        again = cluster.worker("b", state_dir=disk, restore_rows_max=1)
        assert stops(cluster, again).records == {LOG: gone}
        again.close()


def test_it_goes_on_where_that_is_set_and_says_so() -> None:
    cluster = Cluster(partitions=1)
    counted(cluster, START_MS - 4 * DAY_MS)
    gone = retention_pass(cluster)
    cluster.feed("a", START_MS - 4 * DAY_MS)
    with capture_logs() as lines:
        cluster.settle(cluster.worker("b", missing_records="continue"))
    told = [line for line in lines if line["event"] == GONE_ON]
    assert [(line["offsets_gone"], line["log_level"]) for line in told] == [(gone, "warning")]
    assert min(cluster.counts().values()) == 1


def test_a_live_stream_whose_log_begins_later_and_later_never_stops() -> None:
    cluster = Cluster(partitions=1)
    for day in range(6):
        worker = cluster.worker(f"day-{day}")  # an empty disk each time
        for _ in range(3):
            cluster.feed("aab", cluster.clock.now_ms())
            cluster.settle(worker)
        assert worker.stop(cluster.clock.now_ms())
        cluster.clock.advance(DAY_MS)
        start = retention_pass(cluster)
        assert (start > 0) == (day >= 2)
        cluster.clock.advance(-DAY_MS + HOUR_MS * 20)  # it never stands still for a whole day
    with capture_logs() as lines:
        worker = cluster.worker("last")
        cluster.feed("a", cluster.clock.now_ms())
        cluster.settle(worker)
    levels = {line["event"]: line["log_level"] for line in lines}
    assert levels[HARMLESS] == "info"
    assert "warning" not in levels.values()
    assert cluster.counts() == dict(cluster.fed)


def test_a_late_stream_goes_on_while_the_oldest_row_left_is_far_behind_it() -> None:
    cluster = Cluster(partitions=1)
    week_ms = 7 * DAY_MS
    for day in (10, 8, 6, 4):  # events are four days late at the end, and rows are kept for seven
        counted(cluster, START_MS - day * DAY_MS, words="aab")
    assert 0 < retention_pass(cluster, keep_ms=week_ms) < cluster.broker.log(LOG).end
    with capture_logs() as lines:
        worker = cluster.worker("b")
        cluster.feed("a", START_MS - 4 * DAY_MS)
        cluster.settle(worker)
    assert HARMLESS in [line["event"] for line in lines]
    assert cluster.counts() == dict(cluster.fed)


def test_a_live_stream_that_stood_still_until_its_last_rows_were_deleted_goes_on_and_says_so() -> (
    None
):
    cluster = Cluster(partitions=1)
    counted(cluster, START_MS)
    cluster.clock.advance(3 * DAY_MS)
    gone = retention_pass(cluster)
    assert gone == cluster.broker.log(LOG).end
    with capture_logs() as lines:
        worker = cluster.worker("b")
        cluster.feed("aab", cluster.clock.now_ms())
        cluster.settle(worker)
    assert [line["log_level"] for line in lines if line["event"] == GONE_ON] == ["warning"]
    assert cluster.counts() == dict(cluster.fed)


def test_a_restore_that_ends_before_the_first_row_with_a_value_does_not_end_the_doubt() -> None:
    for turns in range(1, 9):
        cluster = Cluster(partitions=1)
        old_ms = (START_MS - 4 * DAY_MS) // 10_000 * 10_000
        worker = cluster.worker("a")
        cluster.feed("aab", old_ms)
        cluster.settle(worker)
        log = cluster.broker.log(LOG)
        closed = next(record.key for record in log.records if record.key is not None)
        gone = retention_pass(cluster)
        for _ in range(5):
            log.append(closed, None, old_ms - 3 * DAY_MS)
        cluster.feed("bc", old_ms)
        cluster.settle(worker)
        assert worker.stop(cluster.clock.now_ms())
        disk = MemoryStateDir()
        first = cluster.worker("b", state_dir=disk, restore_rows_max=1)
        with suppress(MissingRecordsError):
            cluster.run(first, turns=turns)
        first.close()
        assert stops(cluster, cluster.worker("b", state_dir=disk)).records == {LOG: gone}, turns


def test_a_store_without_windows_says_what_it_may_lack_and_stops_when_all_is_gone() -> None:
    cluster = keyed_cluster()
    log = TopicPartition("app-totals-changelog", 0)
    first = cluster.worker("a", keyed_count())
    write(cluster, "aab")
    cluster.settle(first)
    write(cluster, "c")
    cluster.settle(first)
    assert first.stop(cluster.clock.now_ms())
    cluster.broker.log(log).delete_before(1)
    with capture_logs() as lines:
        second = cluster.worker("b", keyed_count())
        cluster.settle(second)
    lacks = "the changelog lost its oldest records; the store lacks what was not written again"
    told = [line for line in lines if line["event"] == lacks]
    assert [(line["store"], line["offsets_gone"]) for line in told] == [("totals", 1)]
    assert second.stop(cluster.clock.now_ms())
    end = cluster.broker.log(log).end
    cluster.broker.log(log).delete_before(end)
    assert stops(cluster, cluster.worker("c", keyed_count())).records == {log: end}


def test_a_standby_is_not_made_of_what_is_left_and_its_owner_goes_on() -> None:
    for words in ("", "c"):  # with nothing left in the log, and with a younger row
        cluster = Cluster(partitions=1)
        old_ms = START_MS - 4 * DAY_MS
        owner = cluster.worker("a")
        cluster.feed("aab", old_ms)
        cluster.settle(owner)
        retention_pass(cluster)
        cluster.feed(words, old_ms)
        cluster.settle(owner)
        second = Second(cluster)
        second.standbys.want([COUNTS])
        with capture_logs() as lines:
            second.turns(20)
        assert [line["event"] for line in lines] == ["no standby from this changelog"]
        assert str(lines[0]["task"]) == str(COUNTS)
        assert second.standbys.lag() is None
        assert second.contents() == {}
        cluster.feed("a", old_ms)
        cluster.settle(owner)
        assert cluster.counts() == dict(cluster.fed)


def test_a_standby_is_made_again_when_no_open_window_needs_what_is_gone() -> None:
    cluster = Cluster(partitions=1)
    owner = cluster.worker("a")
    cluster.feed("aab", START_MS - 4 * DAY_MS)
    cluster.settle(owner)
    retention_pass(cluster)
    second = Second(cluster)
    second.standbys.want([COUNTS])
    second.turns(5)
    assert second.standbys.lag() is None
    cluster.feed("abc", cluster.clock.now_ms())
    cluster.settle(owner)
    cluster.clock.advance(RENEW_MS)
    second.turns(5)
    assert second.standbys.lag() == 0


def test_a_crash_before_anything_was_counted_misses_nothing() -> None:
    cluster = Cluster(partitions=1)
    worker = cluster.worker("a")
    cluster.settle(worker)
    assert worker.stop(cluster.clock.now_ms())
    log = cluster.broker.log(LOG)
    log.append(b"x" * 20, b"y" * 8, 5)
    log.delete_before(log.end)
    cluster.settle(cluster.worker("b"))


def test_where_nothing_is_committed_an_empty_log_is_no_lost_one() -> None:
    cluster = keyed_cluster()
    first = cluster.worker("a", keyed_count())
    write(cluster, "aab")
    cluster.settle(first)
    assert first.stop(cluster.clock.now_ms())
    log = cluster.broker.log(TopicPartition("app-totals-changelog", 0))
    log.delete_before(log.end)
    forget_offsets(cluster)
    cluster.settle(cluster.worker("b", keyed_count()))
