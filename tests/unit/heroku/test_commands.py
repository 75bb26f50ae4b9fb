"""The command lines, word for word: people copy them."""

import pytest

from streamcore.heroku import (
    Topic,
    duration,
    group_command,
    kafka_command,
    recreate_command,
    topic_command,
)

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("topic", "line"),
    [
        (Topic("words", 8), "heroku kafka:topics:create words --partitions 8"),
        (
            Topic("words", 8, retention_ms=36 * HOUR_MS),
            "heroku kafka:topics:create words --partitions 8 --retention-time 36h",
        ),
        (
            Topic("app-counts-changelog", 4, compaction=True, retention_ms=168 * HOUR_MS),
            (
                "heroku kafka:topics:create app-counts-changelog --partitions 4 "
                "--retention-time 7d --compaction"
            ),
        ),
        (
            Topic("app-counts-changelog", 4, compaction=True),
            "heroku kafka:topics:create app-counts-changelog --partitions 4 --compaction",
        ),
    ],
)
def test_a_topic_is_created_with_what_it_needs(topic: Topic, line: str) -> None:
    assert topic_command(topic) == line
    assert topic_command(topic, app="sushi") == f"{line} --app sushi"


def test_a_group_is_created_by_its_name() -> None:
    line = "heroku kafka:consumer-groups:create aggregator-app"
    assert group_command("aggregator-app") == line
    assert group_command("aggregator-app", app="sushi") == f"{line} --app sushi"


def test_one_of_several_clusters_stands_behind_what_it_is_told() -> None:
    where = {"app": "sushi", "cluster": "PINK_URL"}
    words = Topic("words", 8, retention_ms=36 * HOUR_MS)
    create = "heroku kafka:topics:create words PINK_URL --partitions 8 --retention-time 36h"
    assert topic_command(words, **where) == f"{create} --app sushi"
    assert recreate_command(words, **where) == (
        "heroku kafka:topics:destroy words PINK_URL --app sushi --confirm sushi && "
        f"{create} --app sushi"
    )
    assert group_command("readers", **where) == (
        "heroku kafka:consumer-groups:create readers PINK_URL --app sushi"
    )
    assert kafka_command("topics:retention-time", "words", "36h", **where) == (
        "heroku kafka:topics:retention-time words 36h PINK_URL --app sushi"
    )


@pytest.mark.parametrize("name", ["app-words", "mill-1.app-words"])
def test_a_prefix_is_taken_off(name: str) -> None:
    assert " app-words " in topic_command(Topic(name, 1), prefix="mill-1.")
    assert group_command(name, prefix="mill-1.").endswith(" app-words")


def test_nothing_in_a_name_is_read_by_the_shell() -> None:
    assert "'a; rm -rf $HOME'" in topic_command(Topic("a; rm -rf $HOME", 1), app="b`c`")
    assert group_command("a", app="b`c`").endswith("--app 'b`c`'")


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (1, "1h"),
        (HOUR_MS, "1h"),
        (HOUR_MS + 1, "2h"),
        (24 * HOUR_MS, "24h"),
        (24 * HOUR_MS + 1, "25h"),
        (36 * HOUR_MS, "36h"),
        (48 * HOUR_MS, "2d"),
        (49 * HOUR_MS, "49h"),
        (7 * 24 * HOUR_MS, "7d"),
    ],
)
def test_a_time_is_never_shortened(ms: int, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize("wrong", [{"name": ""}, {"partitions": 0}, {"retention_ms": 0}])
def test_a_topic_that_nobody_can_create_is_a_bug(wrong: dict[str, object]) -> None:
    settings: dict[str, object] = {"name": "words", "partitions": 1, **wrong}
    with pytest.raises(AssertionError):
        Topic(**settings)  # type: ignore[arg-type]  # that is what is tried
