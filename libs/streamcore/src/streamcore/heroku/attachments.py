"""Attachments: which variables an add-on has put its address and its certificates into.

An add-on that is attached under the name X gives the variables X_URL, X_PREFIX and so on. The usual
name is KAFKA; another one is named by a setting, or found by its address. Names are all that is
returned or told; a value may be a secret.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from streamcore.errors import ConfigError

KAFKA: Final = "KAFKA"
KAFKA_SETTING: Final = "STREAMCORE_KAFKA_ATTACHMENT"
DATABASE: Final = "DATABASE"
DATABASE_SETTING: Final = "DATABASE_ATTACHMENT"

_KAFKA_SUFFIXES: Final = {
    "kafka_url": "_URL",
    "prefix": "_PREFIX",
    "kafka_trusted_cert": "_TRUSTED_CERT",
    "kafka_client_cert": "_CLIENT_CERT",
    "kafka_client_cert_key": "_CLIENT_CERT_KEY",
}
_KAFKA_SCHEMES: Final = ("kafka://", "kafka+ssl://")
_DATABASE_SCHEMES: Final = ("postgres://", "postgresql://")
_POOL: Final = "_CONNECTION_POOL_URL"
_NAMES_ONE: Final = re.compile(r"[A-Z0-9_]+_KAFKA_ATTACHMENT")  # of all services, or of one


def kafka_variables(
    environ: Mapping[str, str], attachment: str = "", setting: str = KAFKA_SETTING
) -> dict[str, str]:
    """Return the name of the variable for each setting of the engine that an attachment gives.

    The attachment is the one that is named; else KAFKA, if KAFKA_URL is set; else the only one
    whose address is Kafka's; else KAFKA, so that a message can name what to set. Variables that are
    not set are in it too.

    >>> kafka_variables({"HEROKU_KAFKA_AMBER_URL": "kafka+ssl://h:9096"})["kafka_client_cert"]
    'HEROKU_KAFKA_AMBER_CLIENT_CERT'

    :raises ConfigError: if there are several and none is named, or the named one is not there.
        ``setting`` is what the message calls the variable that names it.
    """
    there = _attachments(environ, _KAFKA_SCHEMES)
    if attachment:
        chosen = _named(environ, attachment, setting, there)
    elif environ.get(f"{KAFKA}_URL") or not there:
        chosen = KAFKA
    elif len(there) == 1:
        (chosen,) = there
    else:
        raise _several(there, "brokers", setting)
    return {field: f"{chosen}{suffix}" for field, suffix in _KAFKA_SUFFIXES.items()}


def attachment_of(environ: Mapping[str, str], url: str, prefix: str = "") -> str | None:
    """Return the Kafka attachment that has this address, None if there is none.

    Add-ons on one shared cluster have one address, and each its own prefix. Of those that are alike
    in both the one is taken that a setting names; a service's own copy of an address is the last
    that is taken for an attachment.
    """
    named = {_bare(text) for name, text in environ.items() if _NAMES_ONE.fullmatch(name)}

    def worse(name: str) -> tuple[bool, bool, bool, bool, str]:
        anothers = environ.get(f"{name}_PREFIX", "") != prefix
        unnamed = name not in named
        return anothers, unnamed, name != KAFKA, not name.startswith(f"HEROKU_{KAFKA}"), name

    there = _attachments(environ, _KAFKA_SCHEMES)
    alike = [name for name in there if environ[f"{name}_URL"].strip() == url.strip()]
    return min(alike, key=worse, default=None)


def cluster_argument(environ: Mapping[str, str], url: str, prefix: str = "") -> str | None:
    """Return the word by which the platform's command line is told the cluster of an address.

    Of an app with several Kafka add-ons it refuses every command on topics and groups that does not
    name one. None where there is one only, and no setting names it.

    >>> cluster_argument({"KAFKA_URL": "kafka://a:1", "NEW_URL": "kafka://b:1"}, "kafka://b:1")
    'NEW_URL'
    """
    is_named = any(text and _NAMES_ONE.fullmatch(name) for name, text in environ.items())
    if len(_attachments(environ, _KAFKA_SCHEMES)) < 2 and not is_named:
        return None
    attachment = attachment_of(environ, url, prefix)
    return None if attachment is None else f"{attachment}_URL"


def database_variable(
    environ: Mapping[str, str], attachment: str = "", setting: str = DATABASE_SETTING
) -> str | None:
    """Return the name of the variable with the database's address, None if there is none.

    The one of the attachment that is named; else DATABASE_URL, if it is set; else the only one
    whose address is PostgreSQL's. The pooled address of a database is taken by itself only where no
    direct one is there.

    >>> database_variable({"HEROKU_POSTGRESQL_PINK_URL": "postgres://u:p@h/d"})
    'HEROKU_POSTGRESQL_PINK_URL'

    :raises ConfigError: if there are several and none is named, or the named one is not there.
    """
    there = _attachments(environ, _DATABASE_SCHEMES)
    if attachment:
        return f"{_named(environ, attachment, setting, there)}_URL"
    if environ.get(f"{DATABASE}_URL"):
        return f"{DATABASE}_URL"
    there = [name for name in there if not is_pooled(f"{name}_URL")] or there
    if len(there) > 1:
        raise _several(there, "a database", setting)
    return f"{there[0]}_URL" if there else None


def is_pooled(variable: str) -> bool:
    """Return whether the variable's address leads through a pool that shares connections."""
    return variable.endswith(_POOL)


def _named(environ: Mapping[str, str], attachment: str, setting: str, there: list[str]) -> str:
    """Return the attachment's name; its address may be meant by the name of the variable, too."""
    name = _bare(attachment)
    if environ.get(f"{name}_URL"):
        return name
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):  # an address, perhaps with a password
        raise ConfigError([f"{setting} must be the name of an attachment, such as HEROKU_{KAFKA}"])
    hint = f"; there is {', '.join(there)}" if there else ""
    raise ConfigError([f"{setting} is {name}, and {name}_URL is not set{hint}"])


def _bare(attachment: str) -> str:
    return attachment.strip().removesuffix("_URL")


def _several(there: list[str], what: str, setting: str) -> ConfigError:
    names = ", ".join(f"{name}_URL" for name in there)
    return ConfigError([f"{names} all hold {what}; set {setting} to one of {', '.join(there)}"])


def _attachments(environ: Mapping[str, str], schemes: Iterable[str]) -> list[str]:
    return sorted(
        name.removesuffix("_URL")
        for name, value in environ.items()
        if name.endswith("_URL") and value.strip().startswith(tuple(schemes))
    )
