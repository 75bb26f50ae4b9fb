import pytest

from streamcore.topology.naming import Names


@pytest.mark.parametrize(
    ("prefix", "application", "topic"),
    [("rec-", "app", "words"), ("rec-", "rec-app", "rec-words"), ("rec-", "rec-app", "words")],
)
def test_the_prefix_is_put_on_once(prefix: str, application: str, topic: str) -> None:
    names = Names(prefix, application)
    assert names.group == "rec-app"
    assert names.topic(topic) == "rec-words"
    assert names.internal("counts-changelog") == "rec-app-counts-changelog"


def test_without_a_prefix_the_names_are_those_of_kafka_streams() -> None:
    names = Names("", "app")
    assert names.group == "app"
    assert names.topic("words") == "words"
    assert names.internal("windowed-counts-repartition") == "app-windowed-counts-repartition"


def test_people_are_told_bare_names() -> None:
    for prefix in ("", "mill-1."):
        names = Names(prefix, "app")
        assert names.bare(names.topic("words")) == "words"
        assert names.bare(names.group) == "app"
        assert names.bare(names.internal("counts-changelog")) == "app-counts-changelog"
