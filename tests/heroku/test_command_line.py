"""The stand-in of the program `heroku`: what it makes, and what it refuses as Heroku does."""

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    ConfigResource,
)

from devstack.errors import StackError
from devstack.heroku.account import shell_assignments
from devstack.heroku.broker import HerokuBroker
from devstack.heroku.plans import PLANS
from devstack.heroku.sandbox import Sandbox
from devstack.pytest_plugin import Names

HOUR_MS = 3_600_000


def settings_of(app: Sandbox, topic: str) -> dict[str, str]:
    admin = AdminClient(dict(app.administrators))
    resource = ConfigResource(ConfigResource.Type.TOPIC, f"{app.prefix}{topic}")
    found = admin.describe_configs([resource])[resource].result(timeout=20)
    return {name: entry.value for name, entry in found.items()}


def policy_and_retention(app: Sandbox, topic: str) -> tuple[set[str], int]:
    settings = settings_of(app, topic)
    return set(settings["cleanup.policy"].split(",")), int(settings["retention.ms"])


def test_a_topic_is_made_under_the_prefix_as_it_was_asked_for(heroku: Sandbox) -> None:
    heroku.run("kafka:topics:create plain")
    heroku.run("kafka:topics:create table --compaction --partitions 3")
    heroku.run("kafka:topics:create long --partitions 1 --compaction --retention-time 49h")
    assert policy_and_retention(heroku, "plain") == ({"delete"}, 24 * HOUR_MS)
    # On a shared plan what is compacted is forgotten after its time as well.
    assert policy_and_retention(heroku, "table") == ({"compact", "delete"}, 24 * HOUR_MS)
    assert policy_and_retention(heroku, "long") == ({"compact", "delete"}, 49 * HOUR_MS)
    shown = ["long  1 partitions", "plain  8 partitions", "table  3 partitions"]
    assert heroku.run("kafka:topics") == shown
    shown = heroku.run("kafka:topics:info table")
    assert "Partitions:         3 partitions" in shown
    assert "Retention:          49 hours" in heroku.run("kafka:topics:info long")
    names = AdminClient(dict(heroku.administrators)).list_topics(timeout=20).topics
    assert {f"{heroku.prefix}{name}" for name in ("plain", "table", "long")} <= set(names)

    heroku.run("kafka:topics:compaction plain enable")
    heroku.run("kafka:topics:retention-time plain 2d")
    assert policy_and_retention(heroku, "plain") == ({"compact", "delete"}, 48 * HOUR_MS)


def test_on_a_dedicated_plan_a_compacted_topic_is_kept_and_groups_are_nobodys_business(
    heroku_broker: HerokuBroker, names: Names, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, plan = tmp_path_factory.mktemp("account"), PLANS["standard-0"]
    app = Sandbox.make(heroku_broker, folder, names.prefix.removesuffix("-"), plan=plan)
    topic = names("table")
    app.run(f"kafka:topics:create {topic} --compaction --partitions 1")
    assert settings_of(app, topic)["cleanup.policy"] == "compact"
    assert "does nothing" in app.run("kafka:consumer-groups:create readers")[0]
    assert app.run("kafka:consumer-groups") == ["No consumer groups found."]
    app.run(f"kafka:topics:destroy {topic} --confirm {app.name}")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("kafka:topics:create there", "already exists"),
        ("kafka:topics:create {prefix}new", "leave .* out"),
        ("kafka:topics:create new --retention-time 23h", "between 24 hours and 7 days"),
        ("kafka:topics:create new --retention-time 8d --compaction", "between 24 hours and 7 days"),
        ("kafka:topics:create new --retention-time soon", "Could not parse"),
        ("kafka:topics:create new --replication-factor 1", "must be 3"),
        ("kafka:topics:create new --partitions 80", "243 partition replicas are more than the 240"),
        ("kafka:topics:info absent", "not found"),
        ("kafka:topics:retention-time there disable", "cannot be disabled"),
        ("kafka:topics:destroy there", "--confirm"),
        ("kafka:consumer-groups:create there", "already exists"),
        ("kafka:consumer-groups:create {prefix}new", "leave .* out"),
        ("kafka:topics --app another", "Couldn't find that app"),
        ("addons:create heroku-kafka:basic-0 --as KAFKA", "KAFKA is on there already"),
        ("kafka:topics HEROKU_KAFKA_MAUVE", "Couldn't find that addon"),
        ("addons:create heroku-kafka:basic-9", "no plan"),
        ("addons:create heroku-redis:mini", "Couldn't find that add-on"),
        ("ps:scale worker=1", "No process types"),
        ("config:set KAFKA_PREFIX=other.", "Cannot overwrite attachment values KAFKA_PREFIX"),
        ("config:set KAFKA_URL=kafka://elsewhere:9092", "Cannot overwrite attachment values"),
    ],
)
def test_what_heroku_refuses_is_refused(there: Sandbox, command: str, reason: str) -> None:
    with pytest.raises(StackError, match=reason):
        there.run(command.format(prefix=there.prefix))
    assert there.run("kafka:topics") == ["there  1 partitions"]
    assert there.run("kafka:consumer-groups") == ["there"]


@pytest.fixture(scope="module")
def there(heroku_broker: HerokuBroker, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """An app that nothing is to change: it has the topic `there` and the group `there`."""
    app = Sandbox.make(heroku_broker, tmp_path_factory.mktemp("account"), "there")
    app.run("kafka:topics:create there --partitions 1")
    app.run("kafka:consumer-groups:create there")
    return app


ON_ONE_CLUSTER = (
    "kafka:topics:create words",
    "kafka:topics",
    "kafka:topics:info words",
    "kafka:topics:retention-time words 36h",
    "kafka:topics:compaction words enable",
    "kafka:topics:destroy words",
    "kafka:consumer-groups:create readers",
    "kafka:consumer-groups",
    "kafka:consumer-groups:destroy readers",
)


def test_of_two_clusters_one_must_be_named_by_any_of_its_names(heroku: Sandbox) -> None:
    heroku.run("addons:create heroku-kafka:basic-0 --as HEROKU_KAFKA_MAUVE")
    first, second = heroku.app.kafka
    confirmed = f" --confirm {heroku.name}"
    for command in ON_ONE_CLUSTER:
        with pytest.raises(StackError) as refused:
            heroku.run(command + confirmed * command.count(":destroy"))
        assert str(refused.value) == (
            f"found more than one kafka add-on on {heroku.name}: {first.name}, {second.name}"
        )
    called = ("HEROKU_KAFKA_MAUVE", "HEROKU_KAFKA_MAUVE_URL", second.name)
    for number, command in enumerate(ON_ONE_CLUSTER):
        named = f"{command} {called[number % 3]}"
        heroku.run(named + confirmed * command.count(":destroy"))
        if command.endswith(":create words"):
            assert heroku.run("kafka:topics KAFKA_URL") == [
                "No topics found on this Kafka cluster."
            ]
    # These two speak of all of them.
    heroku.run("kafka:wait")
    assert [row for row in heroku.run("kafka:info") if row.startswith("===")] == [
        "=== KAFKA_URL",
        "=== HEROKU_KAFKA_MAUVE_URL",
    ]


def test_the_program_stands_on_the_path_and_says_refusals_on_stderr(heroku: Sandbox) -> None:
    done = heroku.shell("heroku kafka:topics:create words --partitions 1; heroku kafka:topics")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "words  1 partitions"
    again = heroku.shell("heroku kafka:topics:create words")
    assert (again.returncode, again.stdout) == (1, "")
    assert "already exists" in again.stderr
    nameless = heroku.shell("heroku kafka:topics", {"HEROKU_APP": ""})
    assert nameless.returncode == 1
    assert "Missing required flag app" in nameless.stderr
    assert heroku.shell("heroku kafka:topics:creat words").returncode == 2


def test_variables_can_be_read_by_a_shell(heroku: Sandbox) -> None:
    script = f'{shell_assignments(heroku.env)}printf %s "$KAFKA_CLIENT_CERT_KEY"'
    assert heroku.shell(script).stdout == heroku.env["KAFKA_CLIENT_CERT_KEY"]
    printed = heroku.shell('eval "$(heroku config --shell)"; printf %s "$KAFKA_TRUSTED_CERT"')
    assert printed.stdout == heroku.env["KAFKA_TRUSTED_CERT"]
    assert (heroku.folder / "heroku.json").stat().st_mode & 0o077 == 0
