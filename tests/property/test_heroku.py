"""Addresses, names and command lines for any input: nothing is lost, doubled or read wrongly."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.config import parse_kafka_url
from streamcore.errors import ConfigError
from streamcore.heroku import (
    PLANS,
    Topic,
    budget,
    duration,
    group_command,
    kafka_variables,
    topic_command,
)
from streamcore.topology.naming import Names

HOUR_MS = 3_600_000

words = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
prefixes = st.one_of(st.just(""), words.map(lambda word: f"{word}-1234."))
servers = st.builds(lambda host, port: f"{host}:{port}", words, st.integers(1, 65_535))
spaces = st.text(" \t", max_size=2)
texts = st.text(min_size=1, max_size=12)
variable_names = st.from_regex(r"[A-Z]{1,6}(_KAFKA)?(_[A-Z]{1,6})?", fullmatch=True)
topics = st.builds(
    Topic,
    name=texts,
    partitions=st.integers(1, 999),
    compaction=st.booleans(),
    retention_ms=st.one_of(st.none(), st.integers(1, 10**10)),
)


@given(st.lists(st.tuples(spaces, servers, spaces), min_size=1), st.booleans(), st.booleans())
def test_brokers_keep_their_order_whatever_stands_around_them(
    brokers: list[tuple[str, str, str]], tls: bool, comma: bool
) -> None:
    scheme = "kafka+ssl" if tls else "kafka"
    url = ",".join(f"{before}{scheme}://{server}{after}" for before, server, after in brokers)
    parsed = parse_kafka_url(url + "," * comma)
    assert parsed == (",".join(server for _, server, _ in brokers), tls)


@given(st.text(max_size=40))
def test_any_text_is_brokers_or_one_line_about_its_variable(text: str) -> None:
    try:
        parsed = parse_kafka_url(text, "AMBER_URL")
    except ConfigError as error:
        (problem,) = error.problems
        assert problem.startswith("AMBER_URL: ")
        assert len(problem.splitlines()) == 1
    else:
        assert all(":" in server for server in parsed.servers.split(","))


@given(servers, words)
def test_what_stands_before_an_at_is_never_told(server: str, secret: str) -> None:
    secret = f"{secret}=S3CRET"
    for url in (f"kafka://u:{secret}@{server}", f"kafka://{server},kafka://{secret}@{server}"):
        with pytest.raises(ConfigError) as caught:
            parse_kafka_url(url)
        assert secret not in str(caught.value)


@given(prefixes, words, st.booleans(), st.lists(words, min_size=1), st.booleans())
def test_the_prefix_is_there_exactly_once(
    prefix: str, application: str, application_has_it: bool, bare: list[str], topics_have_it: bool
) -> None:
    names = Names(prefix, prefix * application_has_it + application)
    for topic in bare:
        given_name = prefix * topics_have_it + topic
        for on_broker, expected in (
            (names.topic(given_name), prefix + topic),
            (names.topic(names.topic(given_name)), prefix + topic),
            (names.group, prefix + application),
            (names.internal(f"{topic}-changelog"), f"{prefix}{application}-{topic}-changelog"),
        ):
            assert on_broker == expected
            assert names.bare(on_broker) == expected.removeprefix(prefix)


@given(topics, st.one_of(st.none(), texts))
def test_a_shell_reads_from_a_command_what_was_put_into_it(topic: Topic, app: str | None) -> None:
    words = shlex.split(topic_command(topic, app))
    assert words[:5] == [
        "heroku",
        "kafka:topics:create",
        topic.name,
        "--partitions",
        str(topic.partitions),
    ]
    rest = words[5:]
    assert ("--compaction" in rest[: 3 if topic.retention_ms else 1]) == topic.compaction
    assert ("--retention-time" in rest[:1]) == (topic.retention_ms is not None)
    assert rest[-2:] == ["--app", app] if app else "--app" not in rest
    assert shlex.split(group_command(topic.name, app))[2] == topic.name


@given(st.integers(1, 10**12))
def test_a_time_is_rounded_up_by_less_than_an_hour(ms: int) -> None:
    text = duration(ms)
    told_ms = int(text[:-1]) * {"h": HOUR_MS, "d": 24 * HOUR_MS}[text[-1]]
    assert ms <= told_ms < ms + HOUR_MS


@given(st.dictionaries(variable_names, st.sampled_from(["kafka://h:1", "https://h", "", "1"])))
def test_an_attachment_is_chosen_only_where_there_is_no_choice(values: dict[str, str]) -> None:
    environ = {f"{name}_URL": value for name, value in values.items()}
    there = [name for name, value in environ.items() if value.startswith("kafka")]
    if environ.get("KAFKA_URL") or not there:
        assert kafka_variables(environ)["kafka_url"] == "KAFKA_URL"
    elif len(there) == 1:
        assert [kafka_variables(environ)["kafka_url"]] == there
    else:
        with pytest.raises(ConfigError) as caught:
            kafka_variables(environ)
        assert all(name in str(caught.value) for name in there)


@given(st.lists(topics), st.sampled_from(list(PLANS)), st.integers(1, 4))
def test_a_budget_grows_with_its_topics(wanted: list[Topic], plan: str, replication: int) -> None:
    needed = budget(wanted, PLANS[plan], replication)
    assert needed.replicas == replication * sum(topic.partitions for topic in wanted)
    if needed.fits:
        assert needed.replicas <= PLANS[plan].replicas_max
        assert budget(wanted[1:], PLANS[plan], replication).fits
