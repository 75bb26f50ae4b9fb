"""Bytes of a load, from a rehearsal of real topologies."""

import pytest
from tests.unit.plan.services import count, passed_on, service, split

from streamcore import INT64, STR, Consumed, Produced, StreamsBuilder, heroku
from streamcore.errors import TopologyError
from streamcore.plan import sample
from streamcore.plan.rehearsal import Load, rehearse
from streamcore.plan.services import Service
from streamcore.plan.topics import make_plan
from streamcore.plan.traffic import Traffic, estimate, throttle

WORD_COUNT = (service("split", split()), service("count", count(retention_ms=10_000)))
# A rehearsal is one window long, or ten commits.
QUICK = (
    service("split", split(), commit_interval_ms=100),
    service("count", count(size_ms=1_000, retention_ms=1_000), commit_interval_ms=100),
)
LOAD = Load(words_per_s=300, words_per_line=10, distinct_words=500)


def records(traffic: Traffic) -> dict[str, float]:
    return {one.topic.name: one.records for one in traffic.topics}


def measured(*services: Service, load: Load = LOAD) -> Traffic:
    return estimate(services, make_plan(services), load)


def test_records_are_those_that_the_topologies_send() -> None:
    """A line is ten words; each is counted, at most once a commit and partition."""
    found = records(measured(*WORD_COUNT))
    assert found["lines"] == pytest.approx(1, abs=0.02)
    assert found["words"] == pytest.approx(10, abs=0.1)
    assert 10 <= found["count-counted-repartition"] < 10.6  # markers come on top
    assert 3 < found["counts"] < 10
    # Each count is kept, and each word of a window is deleted once when it expires.
    assert found["counts"] < found["count-counted-changelog"] < 2 * found["counts"]


def test_windows_expire_once_for_each_word_in_them() -> None:
    rehearsed = rehearse(WORD_COUNT, make_plan(WORD_COUNT), LOAD)
    assert rehearsed.seconds == 10  # one window
    lines = sample.lines(round(LOAD.words_per_line), LOAD.distinct_words)
    distinct = {word for _ in range(rehearsed.lines) for word in next(lines).split()}
    expired = rehearsed.sent["count-counted-changelog"].records - rehearsed.sent["counts"].records
    assert expired == pytest.approx(len(distinct), abs=2)


def test_a_batch_is_what_comes_while_its_producer_lingers() -> None:
    """Ten batches a second and partition at most, four partitions; and what is behind a commit."""
    plan = make_plan(WORD_COUNT)
    lingering = rehearse(WORD_COUNT, plan, Load(3_000, 3, 500))
    for topic in ("lines", "words"):
        sent = lingering.sent[topic]
        assert sent.records > 9_000
        assert 0.7 * 400 < sent.batches <= 410 + 4 * 10


def test_commits_that_come_seldom_make_fewer_counts() -> None:
    seldom = (WORD_COUNT[0], service("count", count(), commit_interval_ms=3_000))
    assert records(measured(*seldom))["counts"] < 0.7 * records(measured(*WORD_COUNT))["counts"]


def test_a_topic_is_consumed_once_by_each_reader_and_a_changelog_by_standbys() -> None:
    readers = [
        WORD_COUNT[0],
        service("count", count(), num_standby_replicas=2),
        service("copy", passed_on("words", "copies")),
    ]
    by_name = {one.topic.name: one for one in measured(*readers).topics}

    def readings(name: str) -> float:
        return by_name[name].consumed_bytes / by_name[name].produced_bytes

    assert readings("lines") == readings("count-counted-repartition") == pytest.approx(1)
    assert readings("words") == pytest.approx(2)
    assert readings("counts") == readings("copies") == 0
    assert readings("count-counted-changelog") == pytest.approx(2)


def test_the_same_call_says_the_same() -> None:
    assert measured(*WORD_COUNT).produced_bytes == measured(*WORD_COUNT).produced_bytes


def test_bytes_per_line_fall_as_batches_fill() -> None:
    slow, fast = measured(*WORD_COUNT), measured(*WORD_COUNT, load=Load(3_000, 10, 500))
    assert fast.produced_bytes < 0.8 * slow.produced_bytes
    assert fast.produced_bytes_per_s > slow.produced_bytes_per_s


def test_other_input_than_text_is_said_to_be_unknown() -> None:
    builder = StreamsBuilder()
    builder.stream("numbers", Consumed(key=INT64, value=INT64)).to(
        "out", Produced(key=INT64, value=INT64)
    )
    with pytest.raises(TopologyError, match="lines of text are no input of numeric"):
        measured(service("numeric", builder.build()))


def test_a_circle_has_no_input() -> None:
    circle = (service("there", passed_on("a", "b")), service("back", passed_on("b", "a")))
    with pytest.raises(TopologyError, match="there, back"):
        measured(*circle)


def test_where_a_plan_throttles_its_quota_is_reached() -> None:
    limits = heroku.PLANS["basic-0"]
    plan = make_plan(QUICK)
    found = throttle(QUICK, plan, estimate(QUICK, plan, LOAD), limits)
    assert found is not None
    assert found.binds == "produce"
    there = estimate(QUICK, plan, Load(found.words_per_s, 10, 500))
    assert there.produced_bytes_per_s == pytest.approx(limits.produce_bytes_per_s, rel=0.05)
    assert there.consumed_bytes_per_s < (limits.consume_bytes_per_s or 0)


def test_many_readers_reach_the_other_quota_first() -> None:
    readers = [QUICK[0]]
    builder = StreamsBuilder()
    builder.stream("words", Consumed(key=STR, value=STR)).filter(lambda _k, _v: False).to(
        "none", Produced(key=STR, value=STR)
    )
    readers += [
        service(f"reader-{number}", builder.build(), commit_interval_ms=100) for number in range(12)
    ]
    plan = make_plan(readers)
    found = throttle(readers, plan, estimate(readers, plan, LOAD), heroku.PLANS["basic-0"])
    assert found is not None
    assert found.binds == "consume"


def test_standbys_ask_all_the_time() -> None:
    alone = measured(*WORD_COUNT)
    guarded = measured(WORD_COUNT[0], service("count", count(), num_standby_replicas=1))
    assert guarded.consume_overhead_per_s > alone.consume_overhead_per_s + 10 * 4 * 36


def test_a_dedicated_plan_has_no_quota() -> None:
    plan = make_plan(WORD_COUNT)
    first = estimate(WORD_COUNT, plan, LOAD)
    assert throttle(WORD_COUNT, plan, first, heroku.PLANS["standard-0"]) is None
