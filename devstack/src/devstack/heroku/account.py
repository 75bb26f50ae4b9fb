"""What the stand-in knows: one file with the apps, their variables and their add-ons.

It lies on the platform's side. An app is told its variables, and nothing of where they come from.
"""

import fcntl
import json
import os
import secrets
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from devstack.errors import StackError
from devstack.heroku import rights
from devstack.heroku.plans import Plan, plan_named
from devstack.heroku.quotas import set_quotas

if TYPE_CHECKING:  # a set-up calls the program dozens of times, and most calls need neither
    from devstack.heroku.broker import HerokuBroker

KAFKA_SUFFIXES = ("URL", "TRUSTED_CERT", "CLIENT_CERT", "CLIENT_CERT_KEY", "PREFIX")
_FILE = "heroku.json"
_PROGRAM = "heroku"


@dataclass(slots=True)
class KafkaAddOn:
    """An add-on of an app; `attachment` begins the names of its variables."""

    name: str
    plan_name: str
    prefix: str
    user: str
    attachment: str = "KAFKA"

    def is_called(self, word: str) -> bool:
        """Return whether a command's word for a cluster is this one's."""
        return word in {self.name, self.attachment, f"{self.attachment}_URL"}

    @property
    def plan(self) -> Plan:
        return plan_named(self.plan_name)

    @property
    def principal(self) -> str:
        """The app's certificate, as rights name it."""
        return f"User:{self.user}"

    def full(self, name: str) -> str:
        """Return a topic or group as the broker knows it; raise StackError for a second prefix."""
        if self.prefix and name.startswith(self.prefix):
            raise StackError(f"{name}: leave {self.prefix} out, it is put in front here")
        return f"{self.prefix}{name}"

    def bare(self, name: str) -> str:
        """Return what the app calls a topic or group of the broker."""
        return name.removeprefix(self.prefix)


@dataclass(slots=True)
class App:
    """An app. `config` are its variables, `formation` how many run of which process.

    `reserved` are the variables that add-ons have set: nobody else may.
    """

    name: str
    config: dict[str, str] = field(default_factory=dict)
    formation: dict[str, int] = field(default_factory=dict)
    kafka: list[KafkaAddOn] = field(default_factory=list)
    add_ons: list[str] = field(default_factory=list)
    reserved: list[str] = field(default_factory=list)

    def give(self, name: str, value: str) -> None:
        """Set a variable as an add-on does."""
        self.config[name] = value
        self.reserved.append(name)

    def set(self, name: str, value: str) -> None:
        """Set a variable as a user does; raise StackError for one of an add-on."""
        if name in self.reserved:
            raise StackError(f"Cannot overwrite attachment values {name}")
        self.config[name] = value

    def clusters(self, word: str | None = None) -> list[KafkaAddOn]:
        """Return the Kafka add-ons, or the one that is called so; raise StackError for none."""
        if not self.kafka:
            raise StackError(f"{self.name} has no Kafka: heroku addons:create heroku-kafka:basic-0")
        found = [one for one in self.kafka if not word or one.is_called(word)]
        if not found:
            raise StackError("Couldn't find that addon.")
        return found

    def cluster(self, word: str | None = None) -> KafkaAddOn:
        """Return the Kafka add-on that is meant; raise StackError where that is none, or several.

        Of several the program wants to be told which, by one of its names.
        """
        found = self.clusters(word)
        if len(found) > 1:
            names = ", ".join(one.name for one in found)
            raise StackError(f"found more than one kafka add-on on {self.name}: {names}")
        return found[0]


class Account:
    """The state in a folder. What changes it does so within `changing`."""

    def __init__(self, folder: Path, values: dict[str, Any]) -> None:
        self.folder = folder
        self.admin_bootstrap: str = values["admin_bootstrap"]
        self.kafka_url: str = values["kafka_url"]
        self.database_url: str = values["database_url"]
        self.throttled: bool = values["throttled"]
        self._authority: dict[str, str] = values["authority"]
        self.apps = {app["name"]: _app(app) for app in values["apps"]}

    @classmethod
    def make(
        cls, folder: Path, broker: "HerokuBroker", *, database_url: str = "", throttled: bool = True
    ) -> Self:
        """Begin an account without apps, and the program that works on it."""
        folder.mkdir(parents=True, exist_ok=True)
        values = {
            "admin_bootstrap": broker.admin_bootstrap,
            "kafka_url": broker.url,
            "database_url": database_url,
            "throttled": throttled,
            "authority": asdict(broker.authority.identity),
            "apps": [],
        }
        account = cls(folder, values)
        account.save()
        account._write_program()
        return account

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the account that was begun in this folder."""
        try:
            text = (folder / _FILE).read_text(encoding="utf-8")
        except OSError:
            raise StackError(f"no account in {folder}: is `make heroku-sim` up?") from None
        return cls(folder, json.loads(text))

    @classmethod
    @contextmanager
    def changing(cls, folder: Path) -> Iterator[Self]:
        """Give the account to one at a time; what was changed is kept if nothing is raised."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "account.lock").open("a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            account = cls.load(folder)
            yield account
            account.save()

    @property
    def path(self) -> Path:
        """The folder to put in front of PATH, with the program `heroku`."""
        return self.folder / "bin"

    def app(self, name: str) -> App:
        """Return an app; raise StackError when there is none of that name."""
        if name not in self.apps:
            raise StackError(f"Couldn't find that app: {name}")
        return self.apps[name]

    def add_app(self, name: str) -> App:
        """Make an app; raise StackError when its name is taken."""
        if name in self.apps:
            raise StackError(f"Name {name} is already taken")
        self.apps[name] = App(name)
        return self.apps[name]

    def add_kafka(
        self, app: App, plan: Plan, *, prefix: str | None = None, attachment: str = "KAFKA"
    ) -> None:
        """Give the app its certificate, the rights on its topics, and its variables."""
        from devstack.heroku.certificates import Authority, Identity  # noqa: PLC0415

        if any(one.attachment == attachment for one in app.kafka):
            raise StackError(f"{attachment} is on {app.name} already")
        authority = Authority.from_identity(Identity(**self._authority))
        number = f"{secrets.randbelow(90_000) + 10_000}"
        if prefix is None:
            prefix = f"columbia-{number}."
        user = f"{app.name}-{number}"
        add_on = KafkaAddOn(
            f"kafka-local-{number}", plan.name, prefix if plan.shared else "", user, attachment
        )
        app.kafka.append(add_on)
        identity = authority.issue("client.invalid", user)
        values = (self.kafka_url, authority.certificate, identity.certificate, identity.key)
        for suffix, value in zip(KAFKA_SUFFIXES, values, strict=False):
            app.give(f"{attachment}_{suffix}", value)
        if add_on.prefix:
            app.give(f"{attachment}_PREFIX", add_on.prefix)
        app.add_ons.append(f"heroku-kafka:{plan.name}")
        admin = rights.admin_client(self.admin_bootstrap)
        rights.grant_topics(admin, add_on.principal, add_on.prefix)
        self.throttle(app, on=self.throttled)

    def release(self, app: App, processes: Sequence[str]) -> None:
        """Tell that code was pushed: from now on the app has these processes, none running."""
        app.formation = {name: app.formation.get(name, 0) for name in processes}

    def throttle(self, app: App, *, on: bool) -> None:
        """Put the quotas of the app's plans into force, or take all quotas away."""
        for cluster in app.clusters():
            plan = cluster.plan
            rates = (plan.produce_bytes_per_s, plan.consume_bytes_per_s) if on else (None, None)
            set_quotas(self.admin_bootstrap, cluster.user, *rates)

    def add_postgres(self, app: App, plan: str, attachment: str = "DATABASE") -> None:
        """Tell the app the database."""
        if not self.database_url:
            raise StackError("this stand-in has no database")
        app.give(f"{attachment}_URL", self.database_url)
        app.add_ons.append(f"heroku-postgresql:{plan}")

    def save(self) -> None:
        """Write the state down, all of it or nothing."""
        values = {
            "admin_bootstrap": self.admin_bootstrap,
            "kafka_url": self.kafka_url,
            "database_url": self.database_url,
            "throttled": self.throttled,
            "authority": self._authority,
            "apps": [asdict(app) for app in self.apps.values()],
        }
        unfinished = self.folder / f"{_FILE}.{os.getpid()}"
        unfinished.touch(mode=0o600)
        unfinished.write_text(json.dumps(values, indent=1), encoding="utf-8")
        unfinished.replace(self.folder / _FILE)

    def _write_program(self) -> None:
        self.path.mkdir(exist_ok=True)
        python = [sys.executable, "-m", "devstack.heroku", "--account", str(self.folder)]
        program = self.path / _PROGRAM
        program.write_text(f'#!/bin/sh\nexec {shlex.join(python)} "$@"\n', encoding="utf-8")
        program.chmod(0o755)


def environment(app: App, account: Account) -> dict[str, str]:
    """Return the variables of the app, and those by which the program `heroku` finds it."""
    path = f"{account.path}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**app.config, "HEROKU_APP": app.name, "PATH": path}


def shell_assignments(values: dict[str, str]) -> str:
    """Return lines that a shell can read; certificates keep their newlines.

    >>> shell_assignments({"KAFKA_PREFIX": "local-1234."})
    'KAFKA_PREFIX=local-1234.\\n'
    """
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def _app(values: dict[str, Any]) -> App:
    kafka = values.pop("kafka")
    return App(**values, kafka=[KafkaAddOn(**add_on) for add_on in kafka])
