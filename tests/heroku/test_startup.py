"""Workers without admin rights: what they say and do while something is missing, or taken away.

Commands are taken from what a worker printed, and run as they are.
"""

import signal
import time

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from structlog.testing import capture_logs
from tests.integration.harness import (
    AGGREGATOR,
    CHANGELOG,
    COUNTS,
    REPARTITION,
    WORDS,
    Record,
    Stack,
    difference,
    line,
    recount,
    wait_until,
)

from devstack.heroku import rights
from devstack.heroku.sandbox import Sandbox
from devstack.processes import Child
from streamcore.adapters.kafka_admin import KafkaAdmin
from streamcore.adapters.rare_log import RareLog
from streamcore.errors import TopicCreationRefusedError
from streamcore.runtime.ports import TopicSpec

EXIT_WITHIN_S = 30
ANSWER_MS = 20_000
DENIED_WITHIN_S = 15
WAITING = "waiting for what is missing"
ALL = {WORDS, COUNTS, REPARTITION, CHANGELOG}


@pytest.fixture(autouse=True)
def _commits_often(stack: Stack) -> None:
    stack.settings["STREAMCORE_COMMIT_INTERVAL_MS"] = "200"


def printed(child: Child) -> list[str]:
    """Return the commands in what a service wrote, each on a line of its own."""
    return [row for row in child.tail(200).splitlines() if row.startswith("heroku ")]


def waited_for(child: Child) -> list[str]:
    """Return the commands of a service that waits for them."""
    wait_until(lambda: WAITING in child.tail(50), "the wait", alive=[child])
    row = next(row for row in child.tail(50).splitlines() if WAITING in row)
    listed = row.partition("commands=[")[2].partition("]")[0]
    return [command.strip(" '\"") for command in listed.split(",")]


def run(heroku: Sandbox, commands: list[str]) -> None:
    done = heroku.shell("\n".join(commands))
    assert done.returncode == 0, (commands, done.stdout, done.stderr)


def exits(child: Child, within_s: float) -> str:
    """Return the last line of a service that must end by itself, without its commands."""
    assert child.wait(within_s), f"it goes on:\n{child.tail(40)}"
    assert child.returncode == 1, child.tail(40)
    said = child.tail(200).splitlines()
    (told,) = [row for row in said if row.startswith(f"{child.name.split('-')[0]}: ")]
    assert said[-len(printed(child)) - 1] == told
    return told


def feed(stack: Stack) -> list[Record]:
    now_ms = time.time_ns() // 1_000_000  # such a plan deletes what is older than a day
    words = [line(number % 4, now_ms + number, f"w{number % 7}") for number in range(300)]
    stack.produce(WORDS, words)
    return words


def counted(stack: Stack, words: list[Record], child: Child) -> None:
    truth = recount(words)
    wait_until(lambda: not difference(truth, stack.counts_in_topic()), "the counts", alive=[child])


def test_a_worker_that_was_told_to_wait_goes_on_by_itself_or_ends_at_once_with_0(
    heroku: Sandbox, stack: Stack
) -> None:
    impatient = stack.start("aggregator", "-1", STREAMCORE_WAIT_FOR_TOPICS="true")
    child = stack.start("aggregator", "-2", STREAMCORE_WAIT_FOR_TOPICS="true")
    commands = waited_for(impatient)
    assert waited_for(child) == commands
    assert len(commands) == len(ALL) + 1
    assert "creating " not in child.tail(200), "what is refused is in the commands"
    began_s = time.monotonic()
    impatient.send(signal.SIGTERM)
    assert impatient.wait(5), impatient.tail(40)
    assert impatient.returncode == 0, impatient.tail(40)
    assert time.monotonic() - began_s < 5
    run(heroku, commands)
    words = feed(stack)
    counted(stack, words, child)
    log = child.tail(200)
    assert log.count(WAITING) == 1, "it is told once: that somebody is at work is no news"
    assert "nothing is missing any more" in log
    assert "settings of internal topics may not be seen" in log
    stack.stop(child)


def test_a_topic_that_may_not_be_made_is_told_once_however_often_it_is_tried(
    heroku: Sandbox,
) -> None:
    settings: dict[str, str | int | float | bool] = {**heroku.clients}
    now_s = iter(range(0, 10_000, 60))
    admin = KafkaAdmin(settings, RareLog(monotonic_s=lambda: next(now_s)))
    specs = [TopicSpec(f"{heroku.prefix}{name}", 1, {}) for name in ("one", "two")]
    with capture_logs() as logs:
        for only_ask in (True, False, True, False):
            with pytest.raises(TopicCreationRefusedError) as caught:
                admin.create(specs, ANSWER_MS, only_ask=only_ask)
            assert set(caught.value.topics) == {spec.name for spec in specs}
    admin.close()
    told = [entry["event"] for entry in logs if entry["event"].startswith("creating ")]
    assert sorted(told) == [f"creating {spec.name}" for spec in specs]


def test_of_several_worker_processes_one_prints_the_commands(stack: Stack) -> None:
    child = stack.start("aggregator", STREAMCORE_NUM_STREAM_THREADS="2")
    assert child.wait(EXIT_WITHIN_S), child.tail(40)
    assert child.returncode == 1
    assert len(printed(child)) == len(ALL) + 1


def test_a_right_that_is_taken_away_in_mid_run_ends_the_worker_with_one_line(
    heroku: Sandbox, stack: Stack
) -> None:
    stack.create(*ALL)
    group = f"heroku kafka:consumer-groups:create {AGGREGATOR}"
    admin = rights.admin_client(heroku.broker.admin_bootstrap)
    run(heroku, [group])
    feed(stack)
    child = stack.start("aggregator", "-1")
    stack.wait_for_lag_0(AGGREGATOR, alive=[child])
    rights.revoke_group(admin, heroku.principal, stack.name(AGGREGATOR))
    feed(stack)
    assert "GROUP_AUTHORIZATION_FAILED" in exits(child, DENIED_WITHIN_S)
    assert printed(child) == [group]

    run(heroku, [group])
    child = stack.start("aggregator", "-2")
    stack.wait_for_lag_0(AGGREGATOR, alive=[child])
    for future in admin.delete_acls([reading(heroku)]).values():
        future.result(timeout=20)
    feed(stack)
    told = exits(child, DENIED_WITHIN_S)
    assert "TOPIC_AUTHORIZATION_FAILED" in told
    assert stack.prefix in told, "it names the topic"
    assert "READ" in told


def reading(heroku: Sandbox) -> AclBindingFilter:
    """Return the app's right to read its topics."""
    return AclBindingFilter(
        ResourceType.TOPIC, heroku.prefix, ResourcePatternType.PREFIXED, heroku.principal,
        None,  # type: ignore[arg-type]  # from any host
        AclOperation.READ, AclPermissionType.ANY,
    )  # fmt: skip
