"""Options, addresses and lists are checked before anything is started."""

from pathlib import Path

import pytest

from devstack.errors import StackError
from devstack.jars import KAFKA, Jar, missing, parse
from devstack.kafka_url import client_settings
from devstack.logs import Follower, is_problem
from devstack.options import RunOptions


def test_without_a_text_the_sample_is_fed_for_ever() -> None:
    assert RunOptions(env={}).feed == ["feed", "--sample", "--loop", "--rate", "200"]


def test_a_text_is_fed_once_at_the_rate_asked_for(tmp_path: Path) -> None:
    book = tmp_path / "a book.txt"
    book.write_text("once", encoding="utf-8")
    assert RunOptions(env={}, text=book, rate=2000).feed == ["feed", str(book), "--rate", "2000"]


def test_a_missing_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="there is no file"):
        RunOptions(env={}, text=tmp_path / "none.txt")


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(StackError, match="RATE is 0"):
        RunOptions(env={}, rate=0)


def test_topics_carry_the_prefix_and_keep_records_whatever_their_age() -> None:
    topics = RunOptions(env={"KAFKA_PREFIX": "columbia-1."}).topics
    assert [(topic.name, topic.partitions) for topic in topics] == [
        ("columbia-1.textlines", 4),
        ("columbia-1.words", 4),
        ("columbia-1.windowed-counts", 4),
    ]
    assert {topic.settings["retention.ms"] for topic in topics} == {"-1"}


def test_a_list_of_brokers_becomes_bootstrap_servers() -> None:
    settings = client_settings({"KAFKA_URL": "kafka://a:1, kafka://b:2,"})
    assert settings == {"bootstrap.servers": "a:1,b:2"}


def test_certificates_are_handed_on_as_text_with_real_newlines() -> None:
    settings = client_settings(
        {"KAFKA_URL": "kafka+ssl://a:1", "KAFKA_TRUSTED_CERT": "BEGIN\\nEND"}
    )
    assert settings["ssl.ca.pem"] == "BEGIN\nEND"
    assert settings["security.protocol"] == "ssl"
    assert settings["ssl.endpoint.identification.algorithm"] == "none"


@pytest.mark.parametrize("url", ["a:1", "http://a:1", "kafka://a", "kafka://a:1,,kafka://b:2"])
def test_what_is_no_list_of_brokers_is_refused(url: str) -> None:
    with pytest.raises(StackError, match="KAFKA_URL"):
        client_settings({"KAFKA_URL": url})


def test_two_schemes_are_refused() -> None:
    with pytest.raises(StackError, match="mixes"):
        client_settings({"KAFKA_URL": "kafka://a:1,kafka+ssl://b:2"})


def test_every_listed_jar_is_named_once_with_its_digest() -> None:
    jars = KAFKA.jars()
    assert len({jar.filename for jar in jars}) == len(jars) > 40
    assert any(jar.filename == "kafka_2.13-4.3.1.jar" for jar in jars)


@pytest.mark.parametrize("line", ["abc", "ab a:b:1", f"{'0' * 64} a:b", f"{'0' * 64} a:b:1 c"])
def test_a_line_that_names_no_jar_is_refused(line: str) -> None:
    with pytest.raises(StackError, match=r"a\.list line 1"):
        parse(line, "a.list")


def test_a_jar_with_other_contents_counts_as_missing(tmp_path: Path) -> None:
    # The digest of the bytes "right", computed elsewhere.
    right = "27042f4e6eca7d0b2a7ee4026df2ecfa51d3339e6d122aa099118ecd8563bad9"
    jar = Jar(right, "org.example", "thing", "1")
    (tmp_path / "thing-1.jar").write_bytes(b"wrong")
    assert missing(tmp_path, [jar]) == [jar]
    (tmp_path / "thing-1.jar").write_bytes(b"right")
    assert missing(tmp_path, [jar]) == []


@pytest.mark.parametrize(
    "line",
    [
        "timestamp=1 level=warning event=slow",
        '{"event": "x", "level": "error"}',
        "2026-01-01 [warning  ] slow",
        "error: no such topic",
        "Traceback (most recent call last):",
        "sqlalchemy.exc.OperationalError: away",
    ],
)
def test_complaints_are_noticed(line: str) -> None:
    assert is_problem(line)


@pytest.mark.parametrize(
    "line", ["timestamp=1 level=info event=error_free", "2026 [info ] up", "", "an error of text"]
)
def test_other_lines_are_not(line: str) -> None:
    assert not is_problem(line)


def test_a_follower_reports_each_complaint_once_and_only_when_complete(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    follower = Follower("a.1", log)
    assert follower.problems() == []
    with log.open("a", encoding="utf-8") as opened:
        opened.write("level=info event=up\nlevel=\x1b[33mwarning\x1b[0m event=slow\nlevel=err")
        opened.flush()
        assert follower.problems() == ["a.1: level=warning event=slow"]
        opened.write("or event=bad\n")
    assert follower.problems() == ["a.1: level=error event=bad"]
    assert follower.problems() == []
