"""Null keys, null values and empty words (P03): dropped where Java drops them, and counted."""

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
)
from streamcore.model import OffsetAndMetadata, TopicPartition
from streamcore.testing.driver import TopologyTestDriver
from streamcore.testing.log import Entry


def split_and_count() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("textlines", Consumed(key=STR, value=STR))
        .flat_map_values(lambda line: line.split() if line is not None else [])
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .windowed_by(tumbling(size_ms=1_000))
        .count(Materialized("counts"))
    )
    return builder.build()


def test_no_null_becomes_a_word() -> None:
    with TopologyTestDriver(split_and_count()) as driver:
        lines = driver.input("textlines")
        rows = [(None, "to be"), ("", "to be"), ("k", None), ("k", ""), ("k", "  \n")]
        for key, value in rows:
            lines.pipe(key, value, at_ms=1)
        driver.commit()
        found = {key.key: count for key, count in driver.stored("counts").items()}
        assert found == {"to": 2, "be": 2}
        assert driver.committed("textlines", 0).offset == len(rows)


def test_a_null_key_in_the_repartition_topic_that_is_none_of_ours_is_skipped_and_counted() -> None:
    with TopologyTestDriver(split_and_count()) as driver:
        driver.input("textlines").pipe("k", "to be", at_ms=1)
        foreign = TopicPartition("app-counts-repartition", 0)
        driver.write(foreign, Entry(None, b"be", 1, (("other", b"x"), ("sc-mark", b"short"))))
        driver.write(foreign, Entry(None, b"be", 1))
        driver.input("textlines").pipe("k", "to", at_ms=2)
        driver.commit()
        assert driver.dropped() == {"foreign_repartition_record": 2}
        assert sum(driver.stored("counts").values()) == 3
        assert driver.committed(*foreign) != OffsetAndMetadata(0)


def test_an_empty_word_is_a_key_like_any_other() -> None:
    builder = StreamsBuilder()
    (
        builder.stream("words", Consumed(key=STR, value=STR))
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .count(Materialized("counts"))
    )
    with TopologyTestDriver(builder.build()) as driver:
        for word in ("", "", None, "a"):
            driver.input("words").pipe(None, word, at_ms=1)
        driver.commit()
        assert driver.stored("counts") == {"": 2, "a": 1}
        assert driver.dropped() == {"null_key": 1}


def test_an_unwindowed_aggregate_drops_null_keys_and_null_values_and_counts_each() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key=STR, value=STR))
    stream.group_by_key().count(Materialized("counts"))
    with TopologyTestDriver(builder.build()) as driver:
        for key, value in [(None, "x"), ("a", None), (None, None), ("a", "x")]:
            driver.input("in").pipe(key, value, at_ms=1)
        driver.commit()
        assert driver.stored("counts") == {"a": 1}
        assert driver.dropped() == {"null_key": 2, "null_value": 1}


def test_a_windowed_aggregate_counts_null_values_as_java_does() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key=STR, value=STR))
    stream.group_by_key().windowed_by(tumbling(size_ms=10)).count(Materialized("counts"))
    with TopologyTestDriver(builder.build()) as driver:
        for key, value in [(None, "x"), ("a", None), ("a", "x")]:
            driver.input("in").pipe(key, value, at_ms=1)
        driver.commit()
        assert list(driver.stored("counts").values()) == [2]
        assert driver.dropped() == {"null_key": 1}


def test_a_table_drops_null_keys_and_deletes_by_null_values() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", Consumed(key=STR, value=INT64), Materialized("newest"))
    table.to_stream().to("out", Produced(key=STR, value=INT64))
    with TopologyTestDriver(builder.build(), commit="each") as driver:
        for key, value in [(None, 1), ("a", 1), ("b", 2), ("a", None)]:
            driver.input("in").pipe(key, value, at_ms=1)
        assert driver.stored("newest") == {"b": 2}
        assert driver.dropped() == {"null_key": 1}
        assert [(r.key, r.value) for r in driver.output("out").read()] == [
            ("a", 1),
            ("b", 2),
            ("a", None),
        ]
