"""Which variables count: the named attachment, the usual one, or the only one there is."""

import pytest

from streamcore.errors import ConfigError
from streamcore.heroku import (
    attachment_of,
    cluster_argument,
    database_variable,
    is_pooled,
    kafka_variables,
)

SECRET = "hunter2"
KAFKA = f"kafka+ssl://h1:9096,kafka+ssl://{SECRET}:9096"
POSTGRES = f"postgres://u:{SECRET}@h/d"


def names(attachment: str) -> dict[str, str]:
    return {
        "kafka_url": f"{attachment}_URL",
        "prefix": f"{attachment}_PREFIX",
        "kafka_trusted_cert": f"{attachment}_TRUSTED_CERT",
        "kafka_client_cert": f"{attachment}_CLIENT_CERT",
        "kafka_client_cert_key": f"{attachment}_CLIENT_CERT_KEY",
    }


@pytest.mark.parametrize(
    ("environ", "attachment"),
    [
        ({}, "KAFKA"),
        ({"KAFKA_URL": KAFKA}, "KAFKA"),
        ({"KAFKA_URL": KAFKA, "HEROKU_KAFKA_AMBER_URL": KAFKA}, "KAFKA"),
        ({"KAFKA_URL": "something wrong", "HEROKU_KAFKA_URL": KAFKA}, "KAFKA"),
        ({"HEROKU_KAFKA_URL": KAFKA}, "HEROKU_KAFKA"),
        ({"KAFKA_URL": "", "HEROKU_KAFKA_AMBER_URL": KAFKA}, "HEROKU_KAFKA_AMBER"),
        ({"BROKERS_URL": " kafka://h:9092"}, "BROKERS"),
        ({"NEW_KAFKA_URL": KAFKA, "DATABASE_URL": POSTGRES}, "NEW_KAFKA"),
        # Neither the name alone nor the value alone makes an address of brokers.
        ({"HEROKU_KAFKA_URL": "https://h"}, "KAFKA"),
        ({"KAFKA_MANUAL": KAFKA, "URL": KAFKA}, "KAFKA"),
    ],
)
def test_the_only_address_of_brokers_is_found(environ: dict[str, str], attachment: str) -> None:
    assert kafka_variables(environ) == names(attachment)


@pytest.mark.parametrize("name", ["NEW_KAFKA", "NEW_KAFKA_URL", " NEW_KAFKA "])
def test_an_attachment_that_is_named_wins_over_all_others(name: str) -> None:
    environ = {"KAFKA_URL": KAFKA, "HEROKU_KAFKA_URL": KAFKA, "NEW_KAFKA_URL": KAFKA}
    assert kafka_variables(environ, name) == names("NEW_KAFKA")


def problem(environ: dict[str, str], attachment: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        kafka_variables(environ, attachment)
    (told,) = caught.value.problems
    assert SECRET not in told
    assert "\n" not in told
    return told


def test_several_addresses_are_listed_by_name() -> None:
    told = problem({"NEW_KAFKA_URL": KAFKA, "HEROKU_KAFKA_AMBER_URL": KAFKA})
    assert told == (
        "HEROKU_KAFKA_AMBER_URL, NEW_KAFKA_URL all hold brokers; "
        "set STREAMCORE_KAFKA_ATTACHMENT to one of HEROKU_KAFKA_AMBER, NEW_KAFKA"
    )


def test_a_named_attachment_that_is_not_there_is_told_with_those_that_are() -> None:
    environ = {"KAFKA_URL": KAFKA, "HEROKU_KAFKA_URL": KAFKA, "OLD_URL": ""}
    assert problem(environ, "OLD") == (
        "STREAMCORE_KAFKA_ATTACHMENT is OLD, and OLD_URL is not set; there is HEROKU_KAFKA, KAFKA"
    )
    assert problem({}, "OLD") == "STREAMCORE_KAFKA_ATTACHMENT is OLD, and OLD_URL is not set"


def test_an_address_in_place_of_an_attachment_is_not_repeated() -> None:
    assert "must be the name of an attachment" in problem({}, f"kafka://u:{SECRET}@h:1")


OTHER = "kafka+ssl://o1:9096"
BOTH = {"KAFKA_URL": KAFKA, "KAFKA_PREFIX": "a-1.", "PINK_URL": OTHER, "PINK_PREFIX": "b-2."}
# Two add-ons on one shared cluster.
ALIKE = {**BOTH, "PINK_URL": KAFKA}


@pytest.mark.parametrize(
    ("environ", "url", "prefix", "word"),
    [
        ({}, KAFKA, "", None),
        ({"KAFKA_URL": KAFKA, "KAFKA_PREFIX": "a-1."}, KAFKA, "a-1.", None),
        ({"HEROKU_KAFKA_PINK_URL": KAFKA, "DATABASE_URL": POSTGRES}, KAFKA, "", None),
        (BOTH, KAFKA, "a-1.", "KAFKA_URL"),
        (BOTH, f" {OTHER}", "b-2.", "PINK_URL"),
        (BOTH, OTHER, "by-hand-3.", "PINK_URL"),
        (ALIKE, KAFKA, "a-1.", "KAFKA_URL"),
        (ALIKE, KAFKA, "b-2.", "PINK_URL"),
        # A cluster of nobody's add-on, and a copy of an address.
        (BOTH, "kafka://elsewhere:9092", "", None),
        ({"HEROKU_KAFKA_PINK_URL": OTHER, "ACME_KAFKA_URL": OTHER}, OTHER, "",
         "HEROKU_KAFKA_PINK_URL"),
        # Whoever names one has others, though they are not told here.
        ({"PINK_URL": OTHER, "STREAMCORE_KAFKA_ATTACHMENT": "PINK"}, OTHER, "", "PINK_URL"),
        ({"PINK_URL": OTHER, "MILL_KAFKA_ATTACHMENT": "PINK_URL"}, OTHER, "", "PINK_URL"),
        ({"PINK_URL": OTHER, "STREAMCORE_KAFKA_ATTACHMENT": ""}, OTHER, "", None),
    ],
)  # fmt: skip
def test_a_cluster_is_named_where_there_are_several(
    environ: dict[str, str], url: str, prefix: str, word: str | None
) -> None:
    assert cluster_argument(environ, url, prefix) == word


def test_an_attachment_is_known_by_its_address() -> None:
    assert attachment_of({"PINK_URL": OTHER}, OTHER) == "PINK"
    assert attachment_of({"PINK_URL": OTHER}, KAFKA) is None
    alike = {"KAFKA_URL": OTHER, "AMBER_URL": OTHER, "PINK_URL": OTHER}
    assert attachment_of(alike, OTHER) == "KAFKA"
    for setting in ("STREAMCORE_KAFKA_ATTACHMENT", "SINK_KAFKA_ATTACHMENT"):
        assert attachment_of({**alike, setting: "PINK_URL "}, OTHER) == "PINK"


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, None),
        ({"DATABASE_URL": ""}, None),
        ({"DATABASE_URL": "mysql://h/d"}, "DATABASE_URL"),  # told as wrong by who reads it
        ({"DATABASE_URL": POSTGRES, "HEROKU_POSTGRESQL_PINK_URL": POSTGRES}, "DATABASE_URL"),
        ({"HEROKU_POSTGRESQL_PINK_URL": POSTGRES}, "HEROKU_POSTGRESQL_PINK_URL"),
        ({"HEROKU_POSTGRESQL_URL": "postgresql://h/d"}, "HEROKU_POSTGRESQL_URL"),
        ({"DATABASE_CONNECTION_POOL_URL": POSTGRES}, "DATABASE_CONNECTION_POOL_URL"),
        ({"PINK_URL": POSTGRES, "PINK_CONNECTION_POOL_URL": POSTGRES}, "PINK_URL"),
    ],
)
def test_the_only_database_is_found(environ: dict[str, str], name: str | None) -> None:
    assert database_variable(environ) == name


def test_a_database_is_named_or_the_only_one() -> None:
    environ = {"PINK_URL": POSTGRES, "BLUE_URL": POSTGRES}
    with pytest.raises(ConfigError) as caught:
        database_variable(environ, setting="SINK_DATABASE_ATTACHMENT")
    assert caught.value.problems == (
        "BLUE_URL, PINK_URL all hold a database; set SINK_DATABASE_ATTACHMENT to one of BLUE, PINK",
    )
    assert database_variable(environ | {"DATABASE_URL": POSTGRES}, "PINK") == "PINK_URL"
    with pytest.raises(ConfigError, match="GREEN_URL is not set"):
        database_variable(environ, "GREEN")


def test_a_pool_is_known_by_its_name() -> None:
    assert is_pooled("DATABASE_CONNECTION_POOL_URL")
    assert not is_pooled("DATABASE_URL")
