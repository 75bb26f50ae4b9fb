"""The doctor on the Heroku-like broker: what it says is missing, made by its own commands."""

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner, Result

from devstack.heroku.certificates import Authority
from devstack.heroku.sandbox import Sandbox
from streamcore.cli import app

# The variables of whoever runs the tests are none of the doctor's business.
NOTHING_ELSE: Mapping[str, str | None] = {
    name: None
    for name in os.environ
    if name.startswith(("KAFKA_", "STREAMCORE_", "DATABASE_")) or name == "DYNO"
}
SERVICES = ("ingest", "aggregator")
GROUPS = ("ingest-app", "aggregator-app")
OURS = (
    "aggregator-app-windowed-counts-repartition",
    "aggregator-app-windowed-counts-changelog",
)


def doctor(*words: str, env: Mapping[str, str]) -> Result:
    return CliRunner().invoke(app, ["doctor", *words], env={**NOTHING_ELSE, **env})


def findings(*words: str, env: Mapping[str, str], code: int) -> list[dict[str, Any]]:
    """Return the findings of the one JSON document."""
    done = doctor(*words, "--json", env=env)
    assert done.exit_code == code, done.output
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["exit_code"] == code
    return list(document["findings"])


def examined(*words: str, env: Mapping[str, str], code: int) -> dict[str, Any]:
    """Return the findings by what they are about."""
    return {finding["what"]: finding for finding in findings(*words, env=env, code=code)}


def test_what_is_missing_is_made_by_the_commands_it_prints(heroku: Sandbox) -> None:
    before = examined(*SERVICES, env=heroku.env, code=1)
    failed = {what for what, finding in before.items() if finding["level"] == "failure"}
    topics = {f"topic {name}" for name in ("textlines", "words", "windowed-counts", *OURS)}
    assert failed == topics | {f"group {name}" for name in GROUPS}
    commands = [finding["command"] for finding in before.values() if finding["command"]]
    assert len(commands) == len(failed)
    for command in commands:
        heroku.run(command)

    after = examined(*SERVICES, env=heroku.env, code=0)
    levels = {what: finding["level"] for what, finding in after.items()}
    unknown = {what for what, level in levels.items() if level == "unknown"}
    assert unknown == {f"topic {name}" for name in OURS}  # DescribeConfigs is refused
    assert {what for what, level in levels.items() if level != "ok"} == unknown
    assert after["transactions"]["detail"].startswith("refused, and not needed")
    assert after["idempotence"]["level"] == "ok"
    assert "over TLS" in after["brokers"]["detail"]
    assert heroku.prefix in after["prefix"]["detail"]


def test_services_on_two_clusters_get_theirs_by_the_commands_it_prints(heroku: Sandbox) -> None:
    heroku.run("addons:create heroku-kafka:basic-0 --as HEROKU_KAFKA_MAUVE")
    env = {**heroku.env, "AGGREGATOR_KAFKA_ATTACHMENT": "HEROKU_KAFKA_MAUVE"}
    commands = [one["command"] for one in findings(*SERVICES, env=env, code=1) if one["command"]]
    for command in commands:
        heroku.run(command)
    assert "failure" not in {one["level"] for one in findings(*SERVICES, env=env, code=0)}
    made = {
        name: {row.split()[0] for row in heroku.run(f"kafka:topics {name}")}
        for name in ("KAFKA", "HEROKU_KAFKA_MAUVE")
    }
    assert made == {
        "KAFKA": {"textlines", "words"},
        "HEROKU_KAFKA_MAUVE": {"words", "windowed-counts", *OURS},
    }


def test_for_a_release_phase_missing_topics_are_warnings_where_they_are_waited_for(
    heroku: Sandbox,
) -> None:
    env = {**heroku.env, "STREAMCORE_WAIT_FOR_TOPICS": "true"}
    found = examined("aggregator", "--release", env=env, code=0)
    assert found["topic words"]["level"] == "warning"
    assert found["topic words"]["detail"] == "missing; aggregator waits"
    assert found["group aggregator-app"]["level"] == "warning"


def test_refused_transactions_are_told_in_time_where_they_are_needed(heroku: Sandbox) -> None:
    began_s = time.monotonic()
    env = {**heroku.env, "STREAMCORE_PROCESSING_GUARANTEE": "exactly_once_v2"}
    found = examined("aggregator", env=env, code=1)
    assert time.monotonic() - began_s < 15
    assert found["transactions"]["level"] == "failure"
    assert found["transactions"]["command"] == (
        "heroku config:set STREAMCORE_PROCESSING_GUARANTEE=at_least_once"
    )


def test_refused_idempotence_is_told_in_time(heroku: Sandbox) -> None:
    admin = AdminClient(dict(heroku.administrators))
    deny = AclBinding(
        ResourceType.TOPIC, "*", ResourcePatternType.LITERAL,
        heroku.principal, "*", AclOperation.WRITE, AclPermissionType.DENY,
    )  # fmt: skip
    for future in admin.create_acls([deny]).values():
        future.result(timeout=20)
    began_s = time.monotonic()
    found = examined("ingest", env=heroku.env, code=1)
    assert time.monotonic() - began_s < 15
    assert found["idempotence"]["level"] == "failure"
    assert "CLUSTER_AUTHORIZATION_FAILED" in found["idempotence"]["detail"]


def test_a_foreign_authority_is_told_from_a_certificate_that_is_refused(heroku: Sandbox) -> None:
    foreign = Authority()
    where = heroku.env["KAFKA_URL"].removeprefix("kafka+ssl://")
    found = examined(
        "ingest", env={**heroku.env, "KAFKA_TRUSTED_CERT": foreign.certificate}, code=1
    )
    assert set(found) == {"settings", f"broker {where}"}
    assert "KAFKA_TRUSTED_CERT" in found[f"broker {where}"]["detail"]

    stranger = foreign.issue("client", "stranger")
    ours = {"KAFKA_CLIENT_CERT": stranger.certificate, "KAFKA_CLIENT_CERT_KEY": stranger.key}
    found = examined("ingest", env={**heroku.env, **ours}, code=1)
    assert "KAFKA_CLIENT_CERT" in found[f"broker {where}"]["detail"]
    assert found[f"broker {where}"]["command"] == "heroku kafka:credentials --reset"


def test_tls_on_one_side_only_is_told(heroku: Sandbox) -> None:
    plain = heroku.env["KAFKA_URL"].replace("kafka+ssl://", "kafka://")
    found = examined("ingest", env={"KAFKA_URL": plain}, code=1)
    (finding,) = [one for what, one in found.items() if what.startswith("broker ")]
    assert "kafka+ssl://" in finding["detail"]


def test_a_key_of_another_certificate_is_a_matter_of_settings(heroku: Sandbox) -> None:
    key = Authority().issue("client", "stranger").key
    found = examined("ingest", env={**heroku.env, "KAFKA_CLIENT_CERT_KEY": key}, code=2)
    assert found["settings"]["level"] == "failure"
    assert "(KAFKA_CLIENT_CERT_KEY)" in found["settings"]["detail"]


def test_without_its_prefix_nothing_is_seen(heroku: Sandbox) -> None:
    heroku.run("kafka:topics:create words --partitions 4 --retention-time 24h")
    env = {name: value for name, value in heroku.env.items() if name != "KAFKA_PREFIX"}
    found = examined("aggregator", env=env, code=1)
    assert found["prefix"]["level"] == "failure"
    assert found["prefix"]["command"] == "heroku config:get KAFKA_PREFIX"
    assert found["topic words"]["level"] == "failure"


def test_with_a_prefix_that_is_anothers_nothing_is_seen(heroku: Sandbox) -> None:
    found = examined("aggregator", env={**heroku.env, "KAFKA_PREFIX": "zz."}, code=1)
    assert found["prefix"]["level"] == "failure"
    assert "speaks of no topic behind it" in found["prefix"]["detail"]


def test_the_right_to_create_topics_behind_the_prefix_is_seen(heroku: Sandbox) -> None:
    allowed = AclBinding(
        ResourceType.TOPIC, heroku.prefix, ResourcePatternType.PREFIXED,
        heroku.principal, "*", AclOperation.CREATE, AclPermissionType.ALLOW,
    )  # fmt: skip
    admin = AdminClient(dict(heroku.administrators))
    for future in admin.create_acls([allowed]).values():
        future.result(timeout=20)
    found = examined("aggregator", env=heroku.env, code=1)
    assert {found[f"topic {name}"]["level"] for name in OURS} == {"ok"}
    assert found["topic words"]["level"] == "failure"
    assert heroku.run("kafka:topics") == ["No topics found on this Kafka cluster."], "only asked"


def test_what_it_prints_mends_a_topic_of_ours_with_other_partitions(heroku: Sandbox) -> None:
    env = {**heroku.env, "HEROKU_APP_NAME": heroku.name}
    for name in ("words", "windowed-counts"):
        heroku.run(f"kafka:topics:create {name} --partitions 4 --retention-time 24h")
    heroku.run(f"kafka:topics:create {OURS[1]} --partitions 3 --compaction")
    told = examined("aggregator", env=env, code=1)[f"topic {OURS[1]}"]
    assert told["level"] == "failure"
    done = heroku.shell(told["command"])
    assert done.returncode == 0, done.stderr
    assert examined("aggregator", env=env, code=1)[f"topic {OURS[1]}"]["level"] == "unknown"


def test_no_secret_is_printed(heroku: Sandbox) -> None:
    for words in ((), ("--json",)):
        printed = doctor("ingest", *words, env=heroku.env)
        for name in ("KAFKA_CLIENT_CERT_KEY", "KAFKA_CLIENT_CERT"):
            secret = heroku.env[name].split()[4]
            assert len(secret) > 20
            assert secret not in printed.output
