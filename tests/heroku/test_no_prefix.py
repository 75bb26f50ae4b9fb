"""A worker on a shared cluster whose prefix is not set: the setting is told, and not waited for."""

import pytest
from tests.integration.harness import Stack, wait_until

WITHIN_S = 30
SAID = "KAFKA_PREFIX is not set"


@pytest.mark.parametrize("waits", ["true", "false"])
def test_on_a_dyno_it_ends_with_the_setting_that_is_missing(stack: Stack, waits: str) -> None:
    child = stack.start(
        "aggregator",
        KAFKA_PREFIX="",
        DYNO="aggregator_worker.1",
        STREAMCORE_WAIT_FOR_TOPICS=waits,
    )
    assert child.wait(WITHIN_S), child.tail(40)
    assert child.returncode == 2, child.tail(40)
    last = child.tail(200).splitlines()[-1]
    assert last.startswith(f"aggregator: {SAID}")
    assert last.endswith("heroku config:get KAFKA_PREFIX")
    assert "topics:create" not in child.tail(200)


def test_elsewhere_where_it_may_be_otherwise_it_is_said_first(stack: Stack) -> None:
    child = stack.start("aggregator", KAFKA_PREFIX="", STREAMCORE_WAIT_FOR_TOPICS="true")
    wait_until(lambda: SAID in child.tail(50), "the reason", alive=[child])
    assert "topics:create" not in child.tail(200)
    stack.stop(child)
