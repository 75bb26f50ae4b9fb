"""Ingest in the test driver: what becomes of lines, whatever they are."""

from collections.abc import Iterator

import pytest

from ingest.settings import Settings
from ingest.topology import build
from streamcore.testing.driver import TopologyTestDriver

PARTITIONS = 4


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(build(Settings()), partitions=PARTITIONS) as driver:
        yield driver


def test_a_word_has_no_key_and_time_and_partition_of_its_line(driver: TopologyTestDriver) -> None:
    lines = driver.input("textlines")
    lines.pipe(None, "To be", at_ms=1_000, partition=2)
    lines.pipe(b"key", "or not", at_ms=500, partition=2)
    lines.pipe(b"key", "हिन्दी", at_ms=9_999, partition=3)
    driver.commit()
    words = [(r.partition, r.key, r.value, r.stamp_ms) for r in driver.output("words").read()]
    assert words == [
        (2, None, "to", 1_000),
        (2, None, "be", 1_000),
        (2, None, "or", 500),
        (2, None, "not", 500),
        (3, None, "हिन्दी", 9_999),
    ]


def test_null_and_empty_keys_and_values_make_no_words_of_their_own(
    driver: TopologyTestDriver,
) -> None:
    lines = driver.input("textlines")
    lines.pipe(None, "to be", at_ms=1)
    lines.pipe(b"", "to be", at_ms=2, partition=0)
    lines.pipe(b"k", None, at_ms=3)
    lines.pipe(b"k", "", at_ms=4)
    lines.pipe(b"k", "  \n", at_ms=5)
    driver.commit()
    words = sorted(record.value for record in driver.output("words").read())
    assert words == ["be", "be", "to", "to"]
    assert driver.dropped() == {"null_value": 1}


def test_a_key_that_is_no_text_does_not_matter(driver: TopologyTestDriver) -> None:
    driver.input("textlines").pipe(b"\xff\xfe", "fine", at_ms=1)
    driver.commit()
    assert [record.value for record in driver.output("words").read()] == ["fine"]


def test_headers_of_a_line_go_with_each_of_its_words(driver: TopologyTestDriver) -> None:
    lines = driver.input("textlines")
    lines.pipe(None, "a b", at_ms=1, headers=(("trace", b"1"),))
    lines.pipe(None, "c", at_ms=2)
    driver.commit()
    found = {record.value: record.headers for record in driver.output("words").read()}
    assert found == {"a": (("trace", b"1"),), "b": (("trace", b"1"),), "c": ()}


def test_a_crash_before_the_commit_splits_the_line_again() -> None:
    with TopologyTestDriver(build(Settings()), exactly_once=True) as driver:
        driver.input("textlines").pipe(None, "once only", at_ms=1)
        driver.crash()
        driver.restart()
        driver.run()
        driver.commit()
        assert [record.value for record in driver.output("words").read()] == ["once", "only"]
