"""Facts of a cluster become findings: each of them once bad and once good."""

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.doctor.patients import (
    ALL,
    CHANGELOG,
    HOUR_MS,
    PREFIX,
    REPARTITION,
    case,
    healthy,
    meeting,
    seen,
    service,
    splitting,
    topic,
    with_topic,
    without_topic,
)

from streamcore.cluster import Answer, BrokerFacts, ClusterFacts, Reach
from streamcore.doctor.case import Case
from streamcore.doctor.diagnosis import diagnose
from streamcore.findings import Finding
from streamcore.heroku import kafka_variables


def found(one: Case, what: str) -> list[Finding]:
    return [finding for finding in diagnose(one) if finding.what == what]


def only(one: Case, what: str) -> Finding:
    (finding,) = found(one, what)
    return finding


def levels(one: Case) -> dict[str, str]:
    return {finding.what: finding.level for finding in diagnose(one)}


def test_where_nothing_is_wrong_all_is_ok_but_what_may_not_be_asked() -> None:
    assert levels(case(healthy())) == {
        "brokers": "ok",
        "prefix": "ok",
        "topic words": "ok",
        "topic counted": "ok",
        f"topic {REPARTITION}": "unknown",
        f"topic {CHANGELOG}": "unknown",
        "group counter-app": "ok",
        "plan": "ok",
        "idempotence": "ok",
        "transactions": "ok",
    }


# --- brokers --------------------------------------------------------------------------------------


def with_brokers(*brokers: BrokerFacts) -> ClusterFacts:
    return replace(healthy(), brokers=brokers)


def test_of_several_brokers_one_that_is_away_is_a_warning() -> None:
    facts = with_brokers(
        BrokerFacts("one:9096", "answers"), BrokerFacts("two:9096", "nobody", "no")
    )
    assert only(case(facts), "brokers").detail == "1 of 2 answer, over TLS, the chain checked"
    away = only(case(facts), "broker two:9096")
    assert (away.level, away.detail) == ("warning", "nobody listens there")


def test_a_broker_that_clients_are_sent_to_must_answer() -> None:
    facts = with_brokers(
        BrokerFacts("one:9096", "answers"), BrokerFacts("10.0.0.1:9096", "silent", advertised=True)
    )
    assert only(case(facts), "broker 10.0.0.1:9096").level == "failure"


def test_a_cluster_that_is_away_is_all_there_is_to_say() -> None:
    facts = ClusterFacts((BrokerFacts("one:9096", "nobody"), BrokerFacts("two:9096", "silent")))
    assert levels(case(facts)) == {"broker one:9096": "failure", "broker two:9096": "failure"}


@pytest.mark.parametrize(
    ("reach", "words", "command"),
    [
        ("nobody", "nobody listens", "heroku kafka:info"),
        ("unresolved", "no such host", "heroku config:get KAFKA_URL"),
        ("silent", "no answer in time", "heroku kafka:info"),
        ("foreign", "KAFKA_TRUSTED_CERT", "heroku config:get KAFKA_TRUSTED_CERT"),
        ("refuses us", "KAFKA_CLIENT_CERT", "heroku kafka:credentials --reset"),
        ("plain", "must begin with kafka://", None),
        ("tls", "must begin with kafka+ssl://", None),
        ("trouble", "cannot be asked", None),
    ],
)
def test_why_a_broker_does_not_answer_is_told(
    reach: Reach, words: str, command: str | None
) -> None:
    finding = only(case(ClusterFacts((BrokerFacts("one:9096", reach),))), "broker one:9096")
    assert words in finding.detail
    assert finding.command == command
    plain = case(ClusterFacts((BrokerFacts("one:9092", reach),)), service(tls=False, prefix=""))
    assert only(plain, "broker one:9092").command is None  # nobody there has Heroku's commands


def test_of_two_clusters_every_command_names_its_own() -> None:
    environ = {"KAFKA_URL": "kafka+ssl://three:9096", "PINK_URL": service().config.kafka_url}
    reaches: tuple[Reach, ...] = ("nobody", "silent", "refuses us")
    away = ClusterFacts(tuple(BrokerFacts(f"{reach}:9096", reach) for reach in reaches))
    sick = replace(
        without_topic(healthy(), PREFIX + "words"),
        groups={f"{PREFIX}counter-app": Answer(False, "refused")},
    )
    for changed in (
        topic(PREFIX + CHANGELOG, settings={"cleanup.policy": "delete", "retention.ms": "1"}),
        topic(PREFIX + REPARTITION, 3),
    ):
        sick = with_topic(sick, changed)
    commands = [
        finding.command
        for facts in (away, sick, healthy())
        for finding in diagnose(case(facts, environ=environ))
        if finding.command is not None
    ]
    lines = [line for command in commands for line in command.split(" && ")]
    kinds = {line.split()[1] for line in lines}
    assert kinds == {
        "kafka:info", "kafka:credentials", "kafka:topics:create", "kafka:topics:destroy",
        "kafka:topics:info", "kafka:topics:compaction", "kafka:topics:retention-time",
        "kafka:consumer-groups:create",
    }  # fmt: skip
    assert all(" PINK_URL" in line for line in lines)


# --- prefix ---------------------------------------------------------------------------------------


def test_a_prefix_that_all_topics_have_and_nobody_has_set() -> None:
    finding = only(case(healthy(), service(prefix="")), "prefix")
    assert finding.level == "failure"
    # What an add-on has set cannot be set by hand; this variable goes before it.
    assert finding.command == f"heroku config:set STREAMCORE_PREFIX={PREFIX}"


@pytest.mark.parametrize("names", [[], [f"{PREFIX}words", "words"], ["one.words", "one.counts"]])
def test_without_a_prefix_topics_may_be_called_anything(names: list[str]) -> None:
    facts = replace(healthy(), topics=seen(*map(topic, names), topic("__consumer_offsets")))
    assert only(case(facts, service(prefix="")), "prefix").level == "ok"


def test_topics_that_are_there_without_the_prefix_are_named() -> None:
    finding = only(case(healthy(prefix="")), "prefix")
    assert finding.level == "warning"
    assert finding.detail.startswith(f"counted, {CHANGELOG}, {REPARTITION}, words: there without")


@pytest.mark.parametrize("tls", [True, False])
def test_where_no_name_is_spoken_of_the_prefix_is_missing(tls: bool) -> None:
    names = {"words", "counted", CHANGELOG, REPARTITION}
    facts = replace(healthy(), topics={}, hidden=frozenset(names))
    finding = only(case(facts, service(prefix="", tls=tls)), "prefix")
    assert finding.level == "failure"
    assert finding.command == ("heroku config:get KAFKA_PREFIX" if tls else None)
    some = replace(facts, hidden=frozenset({"words"}))
    assert only(case(some, service(prefix="", tls=tls)), "prefix").level == "ok"


def test_a_prefix_behind_which_no_name_is_spoken_of_is_anothers() -> None:
    names = {f"zz.{name}" for name in ("words", "counted", CHANGELOG, REPARTITION)}
    facts = replace(healthy(), topics={}, hidden=frozenset(names))
    finding = only(case(facts, service(prefix="zz.")), "prefix")
    assert finding.level == "failure"
    assert finding.detail.startswith("KAFKA_PREFIX is zz., and the broker speaks of no topic")
    assert finding.command == "heroku config:get KAFKA_PREFIX"
    set_by_hand = replace(
        case(facts, service(prefix="zz.")), variables={**AMBER, "prefix": "STREAMCORE_PREFIX"}
    )
    assert only(set_by_hand, "prefix").command == "heroku config:unset STREAMCORE_PREFIX"


AMBER = kafka_variables({"AMBER_URL": "kafka+ssl://one:9096"})


def test_variables_are_called_as_the_attachment_calls_them() -> None:
    hidden = replace(
        healthy(), topics={}, hidden=frozenset({"words", "counted", CHANGELOG, REPARTITION})
    )
    away = ClusterFacts((BrokerFacts("one:9096", "foreign"), BrokerFacts("two:9096", "unresolved")))
    refused = ClusterFacts((BrokerFacts("one:9096", "refuses us"), BrokerFacts("two:9", "plain")))
    cases = [case(hidden, service(prefix="")), case(away), case(refused)]
    told = [
        f"{finding.detail} {finding.command}"
        for one in cases
        for finding in diagnose(replace(one, variables=AMBER))
    ]
    text = "\n".join(told)
    assert not re.search(r"(?<![A-Z_])KAFKA_", text)
    for suffix in ("URL", "PREFIX", "TRUSTED_CERT", "CLIENT_CERT", "CLIENT_CERT_KEY"):
        assert f"AMBER_{suffix}" in text


def test_a_prefix_put_on_twice_is_named() -> None:
    facts = with_topic(healthy(), topic(f"{PREFIX}{PREFIX}words"))
    assert "twice" in only(case(facts), "prefix").detail


def test_a_prefix_without_its_dot_is_a_warning() -> None:
    facts = healthy("mill-1234")
    assert [one.level for one in found(case(facts, service(prefix="mill-1234")), "prefix")] == [
        "warning",
        "ok",
    ]


# --- topics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("words", "words --partitions 4 --retention-time 52h"),
        ("counted", "counted --partitions 4 --retention-time 24h"),
        (REPARTITION, f"{REPARTITION} --partitions 4 --retention-time 24h"),
        (CHANGELOG, f"{CHANGELOG} --partitions 4 --retention-time"),
    ],
)
def test_a_missing_topic_is_a_failure_with_herokus_command(name: str, command: str) -> None:
    finding = only(case(without_topic(healthy(), PREFIX + name)), f"topic {name}")
    assert finding.level == "failure"
    assert finding.detail == "missing; counter does not start"
    assert (finding.command or "").startswith(f"heroku kafka:topics:create {command}")


def test_a_missing_topic_is_a_failure_with_kafkas_command() -> None:
    plain = service(tls=False, prefix="")
    finding = only(case(without_topic(healthy(""), "words"), plain), "topic words")
    assert (finding.command or "").startswith(
        "kafka-topics.sh --bootstrap-server one:9092 --create --if-not-exists --topic words "
    )


def test_what_the_worker_may_make_itself_is_not_missed() -> None:
    lacking = without_topic(healthy(), PREFIX + CHANGELOG)
    facts = replace(lacking, creatable=frozenset({PREFIX + CHANGELOG}))
    assert only(case(facts), f"topic {CHANGELOG}").level == "ok"
    assert only(case(lacking), f"topic {CHANGELOG}").level == "failure"
    outer = without_topic(healthy(), PREFIX + "words")
    outer = replace(outer, creatable=frozenset({PREFIX + "words"}))
    assert only(case(outer), "topic words").level == "failure"  # those belong to somebody else


@pytest.mark.parametrize(
    ("release", "waits", "level"),
    [(True, True, "warning"), (True, False, "failure"), (False, True, "failure")],
)
def test_in_a_release_phase_what_is_waited_for_may_be_missing(
    release: bool, waits: bool, level: str
) -> None:
    facts = replace(
        without_topic(healthy(), PREFIX + "words"),
        groups={f"{PREFIX}counter-app": Answer(False, "refused")},
    )
    one = case(facts, service(wait_for_topics=waits), release=release)
    assert only(one, "topic words").level == level
    assert only(one, "group counter-app").level == level
    # What happens is what the setting says, whoever asks.
    does = "waits" if waits else "does not start"
    assert only(one, "topic words").detail == f"missing; counter {does}"


def test_of_the_users_of_a_missing_topic_some_may_wait() -> None:
    names = ("counter", "waiter", "other")
    users = [
        replace(service(application_id=f"{name}-app", wait_for_topics=name == "waiter"), name=name)
        for name in names
    ]
    one = replace(case(without_topic(healthy(), PREFIX + "words"), release=True), services=users)
    finding = only(one, "topic words")
    assert finding.level == "failure"
    assert finding.detail == "missing; counter, other do not start, waiter waits"


def test_a_topic_that_the_broker_does_not_speak_of() -> None:
    facts = replace(
        without_topic(healthy(), PREFIX + "words"), hidden=frozenset({PREFIX + "words"})
    )
    finding = only(case(facts), "topic words")
    assert (finding.level, finding.command) == ("failure", None)


def test_partition_counts_of_our_own_topics_must_be_what_the_engine_demands() -> None:
    facts = with_topic(healthy(), topic(PREFIX + CHANGELOG, 3))
    finding = only(case(facts), f"topic {CHANGELOG}")
    assert finding.level == "failure"
    assert finding.detail.startswith("3 partitions, and 4 are needed")
    assert finding.command == (
        f"heroku kafka:topics:destroy {CHANGELOG} && heroku kafka:topics:create {CHANGELOG} "
        "--partitions 4 --retention-time 152h --compaction"
    )
    plain = service(tls=False, prefix="")
    own = only(case(with_topic(healthy(""), topic(CHANGELOG, 3)), plain), f"topic {CHANGELOG}")
    destroy, create = (own.command or "").split(" && ")
    assert destroy == f"kafka-topics.sh --bootstrap-server one:9092 --delete --topic {CHANGELOG}"
    assert "--create" in create
    assert "--partitions 4" in create


def test_a_topic_of_others_that_does_not_fit_is_made_anew_and_that_costs_its_records() -> None:
    one = service(topology=splitting())
    there = seen(topic(f"{PREFIX}lines", 4), topic(f"{PREFIX}words", 8))
    facts = replace(healthy(), topics=there)
    told = only(case(facts, one), "topic words")
    assert told.level == "failure"
    assert told.detail == "8 partitions, and 4 would fit; made anew it loses its records"
    assert (told.command or "").startswith("heroku kafka:topics:destroy words && heroku ")
    fitting = with_topic(facts, topic(f"{PREFIX}words", 4))
    assert only(case(fitting, one), "topic words").level == "ok"


@pytest.mark.parametrize(("left", "levels"), [(4, []), (3, ["failure"])])
def test_topics_that_meet_in_a_store_must_have_equally_many_partitions(
    left: int, levels: list[str]
) -> None:
    there = seen(topic(f"{PREFIX}left", left), topic(f"{PREFIX}right"))
    one = case(replace(healthy(), topics=there), service(topology=meeting()))
    findings = found(one, "partitions")
    assert [finding.level for finding in findings] == levels
    assert all("'left' (3 partitions)" in finding.detail for finding in findings)
    # Whatever fits or not, the rest is looked at.
    assert only(one, f"topic {CHANGELOG}").level == "failure"
    assert only(one, "group counter-app").level == "ok"


def test_rights_that_are_missing_are_named() -> None:
    silent = replace(topic(PREFIX + "counted"), rights=ALL - {"WRITE"})
    finding = only(case(with_topic(healthy(), silent)), "topic counted")
    assert (finding.level, finding.detail) == ("failure", "this client may not WRITE it")
    unread = replace(topic(PREFIX + "counted"), rights=ALL - {"READ"})
    assert only(case(with_topic(healthy(), unread)), "topic counted").level == "ok"
    untold = replace(topic(PREFIX + "counted"), rights=None)
    assert only(case(with_topic(healthy(), untold)), "topic counted").level == "ok"


NEEDED_H = 76
KEEPS = {"cleanup.policy": "compact", "retention.ms": "1000"}
DAY = {"cleanup.policy": "delete", "retention.ms": str(24 * HOUR_MS)}


@pytest.mark.parametrize(
    ("name", "settings", "level", "words", "command"),
    [
        (CHANGELOG, KEEPS, "ok", "4 partitions", None),
        (CHANGELOG, {"cleanup.policy": "delete"}, "failure", "must have 'compact'", "enable"),
        (
            CHANGELOG,
            {"cleanup.policy": "compact,delete", "retention.ms": str(30 * HOUR_MS)},
            "failure",
            "deletes after 30 h, and",
            "kafka:topics:retention-time",
        ),
        (
            CHANGELOG,  # what is asked for is more than what is needed
            {"cleanup.policy": "compact,delete", "retention.ms": str(NEEDED_H * HOUR_MS)},
            "ok",
            "4 partitions",
            None,
        ),
        (
            CHANGELOG,
            {"cleanup.policy": "compact,delete", "retention.ms": "-1"},
            "ok",
            "4 partitions",
            None,
        ),
        (
            CHANGELOG,
            {**KEEPS, "message.timestamp.type": "LogAppendTime"},
            "failure",
            "must have CreateTime",
            None,
        ),
        (REPARTITION, DAY, "ok", "4 partitions", None),
        (REPARTITION, KEEPS, "failure", "must have 'delete'", "disable"),
        (REPARTITION, {**DAY, "retention.ms": "-1"}, "ok", "4 partitions", None),
        (
            REPARTITION,  # what is lost there was never counted
            {**DAY, "retention.ms": "90000"},
            "failure",
            "deletes after 90 s, and 24 h are needed; what is not counted by then is lost",
            f"heroku kafka:topics:retention-time {REPARTITION} 24h",
        ),
        ("words", {**DAY, "retention.ms": str(72 * HOUR_MS)}, "ok", "4 partitions", None),
        ("words", DAY, "warning", "deletes after 24 h, and 52 h are needed", "52h"),
        ("words", {**DAY, "retention.ms": "90000"}, "warning", "deletes after 90 s", "52h"),
        ("words", KEEPS, "warning", "some may never be read", "disable"),
        ("counted", KEEPS, "ok", "4 partitions", None),  # nobody here reads it
    ],
)
def test_what_the_broker_would_forget(
    name: str, settings: dict[str, str], level: str, words: str, command: str | None
) -> None:
    facts = with_topic(healthy(), topic(PREFIX + name, settings=settings))
    finding = only(case(facts), f"topic {name}")
    assert finding.level == level
    assert words in finding.detail
    assert (command is None) == (finding.command is None)
    assert command is None or command in (finding.command or "")


def test_what_is_on_its_way_to_be_counted_is_never_deleted_by_time_on_a_kafka_of_ones_own() -> None:
    plain = service(tls=False, prefix="")
    hour = with_topic(
        healthy(""), topic(REPARTITION, settings={**DAY, "retention.ms": str(HOUR_MS)})
    )
    finding = only(case(hour, plain), f"topic {REPARTITION}")
    assert (finding.level, finding.detail[:18]) == ("failure", "deletes after 1 h,")
    assert (finding.command or "").endswith(f"{REPARTITION} --add-config retention.ms=-1")


def test_a_store_without_windows_forgets_where_compacted_topics_are_deleted_too() -> None:
    settings = {"cleanup.policy": "compact,delete", "retention.ms": str(24 * HOUR_MS)}
    facts = with_topic(healthy(), topic(PREFIX + CHANGELOG, settings=settings))
    finding = only(case(facts, service(windowed=False)), f"topic {CHANGELOG}")
    assert finding.level == "warning"
    assert "not written for 24 h is forgotten" in finding.detail
    # A shared cluster knows no other kind, but longer times.
    assert finding.command == f"heroku kafka:topics:retention-time {CHANGELOG} 7d"
    longest = {**settings, "retention.ms": str(7 * 24 * HOUR_MS)}
    facts = with_topic(healthy(), topic(PREFIX + CHANGELOG, settings=longest))
    finding = only(case(facts, service(windowed=False)), f"topic {CHANGELOG}")
    assert (finding.level, finding.command) == ("warning", None)
    plain = with_topic(healthy(""), topic(CHANGELOG, settings=settings))
    own = only(case(plain, service(windowed=False, tls=False, prefix="")), f"topic {CHANGELOG}")
    assert "--add-config cleanup.policy=compact" in (own.command or "")


# --- the plan, rights -----------------------------------------------------------------------------


def test_a_plan_has_room_or_not() -> None:
    full = with_topic(healthy(), topic(PREFIX + "big", 79))
    assert only(case(healthy()), "plan").detail == "48 of 240 replicas on basic-0"
    lacking = without_topic(healthy(), PREFIX + "words")
    assert only(case(lacking), "plan").detail.endswith("replicas on basic-0, with what is missing")
    assert only(case(full), "plan").level == "warning"  # the plan is a guess
    assert only(case(full, plan="basic-0"), "plan").level == "failure"
    assert only(case(full, plan="basic-1"), "plan").level == "ok"
    others = with_topic(healthy(), topic("other-1.big", 79))
    assert only(case(others), "plan").level == "ok"  # somebody else's


@pytest.mark.parametrize(
    ("answer", "level"),
    [(Answer(True), "ok"), (Answer(False, "no"), "failure"), (Answer(None, "late"), "unknown")],
)
def test_the_group(answer: Answer, level: str) -> None:
    facts = replace(healthy(), groups={f"{PREFIX}counter-app": answer})
    finding = only(case(facts), "group counter-app")
    assert finding.level == level
    granted = "heroku kafka:consumer-groups:create counter-app"
    assert finding.command == (granted if level == "failure" else None)
    plain = replace(healthy(""), groups={"counter-app": answer})
    own = only(case(plain, service(tls=False, prefix="")), "group counter-app")
    assert (own.level, own.command) == (level, None)


@pytest.mark.parametrize(
    ("answer", "level"),
    [(Answer(True), "ok"), (Answer(False, "no"), "failure"), (Answer(None, "late"), "unknown")],
)
def test_idempotence(answer: Answer, level: str) -> None:
    assert only(case(replace(healthy(), idempotence=answer)), "idempotence").level == level


@pytest.mark.parametrize(
    ("answer", "guarantee", "level"),
    [
        (Answer(True), "exactly_once_v2", "ok"),
        (Answer(True), "at_least_once", "ok"),
        (Answer(False, "no"), "exactly_once_v2", "failure"),
        (Answer(False, "no"), "at_least_once", "ok"),
        (Answer(None, "late"), "exactly_once_v2", "unknown"),
        (Answer(None, "late"), "at_least_once", "unknown"),
    ],
)
def test_transactions_matter_where_they_are_asked_for(
    answer: Answer, guarantee: Any, level: str
) -> None:
    one = case(replace(healthy(), transactions=answer), service(processing_guarantee=guarantee))
    finding = only(one, "transactions")
    assert finding.level == level
    assert (finding.command is not None) == (level == "failure")
