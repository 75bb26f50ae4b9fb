"""Remedies: the commands under an error, in the form that the cluster at hand understands."""

from collections.abc import Mapping
from typing import Any

import pytest

from streamcore.config import StreamsConfig
from streamcore.errors import (
    AuthorizationError,
    GroupRefusedError,
    MisfitTopicsError,
    MissingGroupError,
    MissingTopic,
    MissingTopicsError,
    StreamsError,
    TopicError,
)
from streamcore.remedies import mending_commands, prefix_problem
from streamcore.service import tell_errors

HOUR_MS = 3_600_000
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1000"}
MISSING = MissingTopicsError(
    [
        MissingTopic("words", 4, {"cleanup.policy": "delete", "retention.ms": "1"}, 24 * HOUR_MS),
        MissingTopic("app-counts-changelog", 4, COMPACT, 49 * HOUR_MS),
    ],
    "app",
)
CERTIFICATES = {
    f"kafka_{field}": f"-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----"
    for field, kind in (
        ("trusted_cert", "CERTIFICATE"),
        ("client_cert", "CERTIFICATE"),
        ("client_cert_key", "PRIVATE KEY"),
    )
}


def told(
    error: StreamsError,
    environ: Mapping[str, str] | None = None,
    url: str = "kafka://one:9092,kafka://two:9092",
    **settings: object,
) -> tuple[str, ...]:
    config = StreamsConfig(application_id="app", kafka_url=url, **settings)  # type: ignore[arg-type]
    return mending_commands(error, config, environ or {})


def test_a_shared_plan_gets_bare_names_a_time_for_every_topic_and_the_group() -> None:
    environ = {"DYNO": "aggregator_worker.1", "HEROKU_APP_NAME": "sushi"}
    assert told(MISSING, environ, prefix="columbia-1.") == (
        "heroku kafka:topics:create words --partitions 4 --retention-time 24h --app sushi",
        (
            "heroku kafka:topics:create app-counts-changelog --partitions 4 --retention-time 49h "
            "--compaction --app sushi"
        ),
        "heroku kafka:consumer-groups:create app --app sushi",
    )


def test_a_dedicated_plan_keeps_a_compacted_topic_for_ever() -> None:
    lines = told(MISSING, {"DYNO": "worker.1"})
    assert lines[1] == (
        "heroku kafka:topics:create app-counts-changelog --partitions 4 --compaction"
    )


@pytest.mark.parametrize(
    ("environ", "settings"),
    [
        ({"DYNO": "worker.1"}, {}),
        ({}, {"prefix": "columbia-1."}),
        ({}, {"url": "kafka+ssl://one:9096", **CERTIFICATES}),
    ],
)
def test_a_dyno_a_prefix_or_tls_is_taken_for_that_platform(
    environ: dict[str, str], settings: dict[str, str]
) -> None:
    missing = MissingTopicsError(MISSING.topics)
    assert told(missing, environ, **settings)[0].startswith("heroku ")


@pytest.mark.parametrize("error", [MISSING, MissingGroupError("app"), GroupRefusedError("no")])
def test_a_group_refused_over_tls_without_a_prefix_is_a_prefix_that_is_missing(
    error: StreamsError,
) -> None:
    tls: dict[str, Any] = {"url": "kafka+ssl://one:9096", **CERTIFICATES}
    (line,) = told(error, {"HEROKU_APP_NAME": "sushi"}, **tls)
    assert line.startswith("KAFKA_PREFIX is not set")
    assert line.endswith("heroku config:get KAFKA_PREFIX --app sushi")
    (amber,) = told(error, {"AMBER_URL": "kafka+ssl://one:9096"}, **tls)
    assert amber.startswith("AMBER_PREFIX is not set")
    two = {"KAFKA_URL": "kafka+ssl://two:9096", "KAFKA_PREFIX": "two-2."}
    two |= {"PINK_URL": "kafka+ssl://one:9096", "SINK_KAFKA_ATTACHMENT": "PINK"}
    (of_one_service,) = told(error, two, **tls)
    assert of_one_service.startswith("PINK_PREFIX is not set")
    assert of_one_service.endswith("heroku config:get PINK_PREFIX")
    assert told(error, prefix="columbia-1.", **tls)[-1].startswith("heroku kafka:consumer-groups")
    config = StreamsConfig(application_id="app", kafka_url="kafka://one:9092")
    assert prefix_problem(error, config, {}) is None


def test_topics_with_other_partitions_are_made_anew() -> None:
    topic = MissingTopic("app-counts-changelog", 4, COMPACT, 49 * HOUR_MS)
    misfits = MisfitTopicsError("8 partitions", [topic])
    (line,) = told(misfits, {"HEROKU_APP_NAME": "sushi"}, prefix="columbia-1.")
    assert line == (
        "heroku kafka:topics:destroy app-counts-changelog --app sushi --confirm sushi && "
        "heroku kafka:topics:create app-counts-changelog --partitions 4 --retention-time 49h "
        "--compaction --app sushi"
    )
    (plain,) = told(misfits)
    assert "--delete --topic app-counts-changelog && kafka-topics.sh" in plain


def test_of_two_clusters_the_one_is_named_on_which_it_is_missing() -> None:
    environ = {"KAFKA_URL": "kafka://a:9092", "PINK_URL": "kafka://b:9092", "PINK_PREFIX": "p-1."}
    for url, prefix, cluster in (("a", "k-1.", "KAFKA_URL"), ("b", "p-1.", "PINK_URL")):
        lines = told(MISSING, environ, f"kafka://{url}:9092", prefix=prefix)
        assert len(lines) == 3
        assert {line.split()[3] for line in lines} == {cluster}
    misfits = MisfitTopicsError("8 partitions", MISSING.topics[:1])
    (anew,) = told(misfits, environ, "kafka://b:9092", prefix="p-1.")
    assert anew.count(" words PINK_URL ") == 2


def test_what_is_kept_for_ever_gets_the_longest_time_of_a_shared_plan() -> None:
    missing = MissingTopicsError([MissingTopic("app-total-changelog", 4, COMPACT)])
    (line,) = told(missing, prefix="columbia-1.")
    assert "--retention-time 7d --compaction" in line
    (dedicated,) = told(missing, {"DYNO": "worker.1"})
    assert "--retention-time" not in dedicated


def test_another_cluster_gets_kafkas_own_commands_with_every_setting() -> None:
    words, changelog, group = told(MISSING)
    assert words.startswith("kafka-topics.sh --bootstrap-server one:9092,two:9092 --create ")
    assert "--config cleanup.policy=compact --config segment.bytes=1000" in changelog
    assert group == (
        "kafka-acls.sh --bootstrap-server one:9092,two:9092 --add --allow-principal User:ANONYMOUS "
        "--operation Read --operation Describe --group app"
    )
    (with_user,) = told(MissingGroupError("app"), kafka_settings={"sasl.username": "bob"})
    assert "User:bob" in with_user


@pytest.mark.parametrize("error", [MissingGroupError("app"), GroupRefusedError("refused")])
def test_a_refused_group_alone_has_its_command(error: StreamsError) -> None:
    # An application id may carry the prefix already.
    config = StreamsConfig(
        application_id="columbia-1.app", prefix="columbia-1.", kafka_url="kafka://one:9092"
    )
    assert mending_commands(error, config, {}) == ("heroku kafka:consumer-groups:create app",)


@pytest.mark.parametrize("error", [TopicError("does not fit"), AuthorizationError("refused")])
def test_other_errors_have_no_command(error: StreamsError) -> None:
    assert told(error) == ()


def test_commands_stand_under_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    error = MissingTopicsError([MissingTopic("words", 4, keep_ms=24 * HOUR_MS)])
    for command in told(error, prefix="columbia-1."):
        error.add_note(command)
    with pytest.raises(SystemExit) as caught, tell_errors("aggregator"):
        raise error
    assert caught.value.code == 1
    assert capsys.readouterr().err.splitlines() == [
        f"aggregator: {error}",
        "heroku kafka:topics:create words --partitions 4 --retention-time 24h",
    ]
