"""Settings of the sink: environment to a frozen value."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pydantic import Field, SecretStr, field_validator
from sqlalchemy import URL, make_url

from streamcore.errors import ConfigError
from streamcore.heroku import database_variable
from streamcore.settings import ServiceSettings, shared_environment, variables

EXAMPLE: Final = "postgresql://user:password@host:5432/name"
_PLAIN_URL: Final = "DATABASE_URL"
_DRIVER: Final = "postgresql+psycopg"
_SCHEMES: Final = ("postgres", "postgresql", _DRIVER)
_NEAR: Final = ("", "localhost", "127.0.0.1", "::1")
_PORT: Final = re.compile(r"(?<!:):\d+$")  # which an option of several hosts may have
_UNREADABLE: Final = "it cannot be read; special characters in the password must be percent-encoded"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is, as SQLAlchemy wants it, and the variable that says so, for who must
    correct it. The text of neither shows a password.
    """

    url: URL
    variable: str


class NoDatabaseError(ConfigError):
    """No variable holds an address of a database."""

    def __init__(self) -> None:
        super().__init__([f"{_PLAIN_URL} is not set; name the database, as in {EXAMPLE}"])


class Settings(ServiceSettings):
    """Where counts come from and where they go. ``window_size_ms`` must be the aggregator's: the
    end of a window is not in the topic.

    The database is chosen by the rule for brokers (``streamcore.settings``): SINK_DATABASE_URL,
    else the attachment that is named, else DATABASE_URL, else the only address there is.
    """

    service: ClassVar[str] = "sink"
    plain_names: ClassVar[Mapping[str, str]] = {
        "counts_topic": "COUNTS_TOPIC",
        "window_size_ms": "WINDOW_SIZE_MS",
        "database_url": _PLAIN_URL,
        "database_attachment": "DATABASE_ATTACHMENT",
    }
    engine_defaults: ClassVar[Mapping[str, Any]] = {"application_id": "sink-app"}

    counts_topic: str = "windowed-counts"
    window_size_ms: int = Field(default=10_000, gt=0)
    database_url: SecretStr = SecretStr("")
    database_attachment: str = ""

    @field_validator("database_url")
    @classmethod
    def _is_an_address(cls, url: SecretStr) -> SecretStr:
        if url.get_secret_value():  # none at all is said when somebody needs it
            database_url(url.get_secret_value())
        return url

    @property
    def address(self) -> Address:
        """The database's address, of the variable that counts.

        :raises ConfigError: if there is none, or it cannot be told which.
        """
        own, text = _source("database_url"), self.database_url.get_secret_value()
        attached = None
        if self.database_attachment:
            # It has to be there also where an address of ours alone goes before it.
            attached = database_variable(
                os.environ, self.database_attachment, _source("database_attachment")
            )
        elif not text:
            attached = database_variable(shared_environment(Settings))
        if text and (attached is None or own != _PLAIN_URL):
            return _address(own, text)
        if attached is None:
            raise NoDatabaseError
        return _address(attached, os.environ[attached])


def _address(variable: str, text: str) -> Address:
    try:
        return Address(database_url(text), variable)
    except ValueError as error:
        raise ConfigError([f"{variable}: {error}"]) from None


def _source(field: str) -> str:
    """Return the name of the variable that the setting comes from, or would come from."""
    (variable,) = (each for each in variables(Settings) if each.field == field)
    return variable.source(os.environ) or variable.names[0]


def database_url(text: str) -> URL:
    """Return the address for the psycopg driver; options such as sslmode are kept.

    Another host than this one is only talked to over TLS, unless the address (or PGSSLMODE, as in
    all programs that use libpq) says otherwise. No message repeats any part of the text but the
    scheme, for a password may stand anywhere in an address that was put together wrongly.

    >>> database_url("postgres://u:p%40s@db.example/d?sslmode=verify-full")
    postgresql+psycopg://u:***@db.example/d?sslmode=verify-full

    :raises ValueError: if this is not the address of a PostgreSQL database.
    """
    scheme, found, _ = text.partition("://")
    if not found or not scheme.replace("+", "").isalnum():
        raise ValueError(f"it is not an address; it should be like {EXAMPLE}")
    if scheme not in _SCHEMES:
        raise ValueError(f"{scheme}:// is not a PostgreSQL database; it should be like {EXAMPLE}")
    try:
        url = make_url(text).set(drivername=_DRIVER)
    except Exception:  # whatever it says may repeat a part of the password
        raise ValueError(_UNREADABLE) from None
    if "@" in f"{url.host}{url.database}":  # the password had one, and its rest landed there
        raise ValueError(_UNREADABLE)
    if not url.database:
        raise ValueError(f"it names no database; it should be like {EXAMPLE}")
    if "sslmode" not in url.query and not is_local(url):
        url = url.update_query_dict({"sslmode": os.environ.get("PGSSLMODE") or "require"})
    return url


def is_local(url: URL) -> bool:
    """Return whether the database runs on this machine, as far as its address tells."""
    options = url.normalized_query
    hosts = [url.host or "", *options.get("host", ()), *options.get("hostaddr", ())]
    return all(_PORT.sub("", host) in _NEAR or host.startswith("/") for host in hosts)
