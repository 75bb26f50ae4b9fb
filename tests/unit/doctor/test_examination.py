"""Settings, the cluster and the services' own checks, each looked at whatever the others say."""

import os
from collections.abc import Iterable

import pytest

from streamcore import application
from streamcore.cluster import Answer, BrokerFacts, ClusterFacts
from streamcore.config import StreamsConfig
from streamcore.doctor.examination import Asked, Examination, examine
from streamcore.doctor.report import exit_code

NOBODY = "postgres://user:sesame@127.0.0.1:1/counts"


class Cluster:
    """Answers with one broker and nothing on it, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[StreamsConfig, list[str], list[str], float]] = []

    def __call__(
        self,
        config: StreamsConfig,
        topics: Iterable[str],
        groups: Iterable[str],
        *,
        timeout_s: float,
    ) -> ClusterFacts:
        groups = list(groups)
        self.asked.append((config, list(topics), groups, timeout_s))
        return ClusterFacts(
            brokers=(BrokerFacts("one:9092", "answers"),),
            groups=dict.fromkeys(groups, Answer(True)),
            idempotence=Answer(True),
            transactions=Answer(True),
        )


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("KAFKA_", "DATABASE_", "STREAMCORE_", "SINK_")) or name == "DYNO":
            monkeypatch.delenv(name)
    monkeypatch.setenv("KAFKA_URL", "kafka://one:9092")
    monkeypatch.setenv("DATABASE_URL", NOBODY)


def settings_of(found: Examination) -> list[str]:
    return [finding.detail for finding in found.findings if finding.what == "settings"]


def test_services_with_one_connection_are_asked_about_at_once() -> None:
    cluster = Cluster()
    found = examine(Asked(timeout_s=7.0), cluster, {})
    ((_, topics, groups, timeout_s),) = cluster.asked
    assert {"textlines", "words", "windowed-counts"} < set(topics)
    assert sorted(groups) == ["aggregator-app", "ingest-app", "sink-app"]
    assert timeout_s == 7.0
    assert settings_of(found) == ["ingest, aggregator, sink can be read"]
    assert not found.settings_are_wrong
    missing = [one for one in found.findings if one.what == "topic words"]
    assert [one.detail for one in missing] == ["missing; ingest, aggregator do not start"]


def test_services_with_connections_of_their_own_are_asked_about_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SINK_KAFKA_URL", "kafka://two:9092")
    cluster = Cluster()
    examine(Asked(), cluster, {})
    assert [config.brokers.servers for config, *_ in cluster.asked] == ["one:9092", "two:9092"]


def test_transactions_are_asked_for_in_the_name_of_who_needs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SINK_PROCESSING_GUARANTEE", "exactly_once_v2")
    cluster = Cluster()
    examine(Asked(), cluster, {})
    ((config, _, groups, _),) = cluster.asked
    assert config.exactly_once
    assert groups[0] == "sink-app"


def test_a_service_whose_settings_cannot_be_read_keeps_no_other_from_being_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGGREGATOR_EMIT", "sometimes")
    cluster = Cluster()
    found = examine(Asked(), cluster, {})
    assert found.settings_are_wrong
    wrong, right = settings_of(found)
    assert wrong.startswith("AGGREGATOR_EMIT is 'sometimes'")
    assert right == "ingest, sink can be read"
    assert [groups for _, _, groups, _ in cluster.asked] == [["ingest-app", "sink-app"]]


def test_a_problem_that_all_share_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_URL")
    found = examine(Asked(), Cluster(), {})
    assert found.settings_are_wrong
    assert len(settings_of(found)) == 1


def test_services_of_one_group_are_a_matter_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINK_APPLICATION_ID", "aggregator-app")
    found = examine(Asked(), Cluster(), {})
    assert found.settings_are_wrong
    (first, *_) = settings_of(found)
    assert first.startswith("aggregator and sink have the same consumer group aggregator-app")


def test_variables_are_named_as_the_attachment_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_URL")
    monkeypatch.setenv("HEROKU_KAFKA_AMBER_URL", "kafka://one:9092")

    class Away(Cluster):
        def __call__(self, *_: object, **__: object) -> ClusterFacts:
            return ClusterFacts((BrokerFacts("one:9092", "tls"),))

    found = examine(Asked(), Away(), {})
    (broker,) = [one for one in found.findings if one.what == "broker one:9092"]
    assert "HEROKU_KAFKA_AMBER_URL must begin with" in broker.detail


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Asked(services=("nobody",)), "nobody is no installed application"),
        (Asked(services=("ingest",), plan="golden-7"), "golden-7 is no plan"),
    ],
)
def test_what_was_asked_wrongly_is_a_matter_of_settings(asked: Asked, words: str) -> None:
    found = examine(asked, Cluster(), {})
    assert found.settings_are_wrong
    assert any(detail.startswith(words) for detail in settings_of(found))


@pytest.mark.parametrize("release", [True, False])
def test_no_application_is_a_matter_of_settings_and_never_well(
    monkeypatch: pytest.MonkeyPatch, release: bool
) -> None:
    monkeypatch.setattr(application, "entry_points", lambda **_: ())
    cluster = Cluster()
    found = examine(Asked(release=release), cluster, {})
    assert settings_of(found) == ["no application is installed"]
    assert exit_code(found.findings, settings_are_wrong=found.settings_are_wrong) == 2
    assert not cluster.asked


def test_services_on_two_clusters_have_commands_for_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PINK_URL", "kafka://two:9092")
    monkeypatch.setenv("PINK_PREFIX", "pink-2.")
    monkeypatch.setenv("KAFKA_PREFIX", "mill-1.")
    monkeypatch.setenv("SINK_KAFKA_ATTACHMENT", "PINK")
    environ = dict(os.environ)
    for names, cluster in ((("ingest", "aggregator"), "KAFKA_URL"), (("sink",), "PINK_URL")):
        found = examine(Asked(services=names), Cluster(), environ)
        commands = [one.command for one in found.findings if one.what.startswith("topic ")]
        assert commands
        assert all(command and command.split()[3] == cluster for command in commands)


def test_only_the_services_that_are_named_are_looked_at() -> None:
    cluster = Cluster()
    found = examine(Asked(services=("ingest",)), cluster, {})
    assert [groups for _, _, groups, _ in cluster.asked] == [["ingest-app"]]
    assert "database" not in {finding.what for finding in found.findings}


def test_a_database_that_is_away_is_told_without_its_password() -> None:
    found = examine(Asked(services=("sink",)), Cluster(), {})
    (away,) = [finding for finding in found.findings if finding.what == "database"]
    assert away.level == "failure"
    assert "sesame" not in away.detail
    assert not found.settings_are_wrong


def test_a_database_that_nobody_has_named_is_a_matter_of_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DATABASE_URL")
    found = examine(Asked(services=("sink",)), Cluster(), {})
    assert found.settings_are_wrong
    assert any(detail.startswith("DATABASE_URL is not set") for detail in settings_of(found))
