"""One app on a Heroku-like broker, as a test or a person holds it."""

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from devstack.heroku.account import Account, App, environment
from devstack.heroku.broker import HerokuBroker
from devstack.heroku.command_line import run
from devstack.heroku.plans import PLANS, Plan
from devstack.kafka_url import client_settings
from devstack.places import ROOT
from devstack.procfile import read_procfile

_SCRIPT_S = 120.0


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The app `name` of the account in a folder."""

    broker: HerokuBroker
    folder: Path
    name: str

    @classmethod
    def make(  # noqa: PLR0913
        cls,
        broker: HerokuBroker,
        folder: Path,
        name: str,
        *,
        plan: Plan = PLANS["basic-0"],
        prefix: str | None = None,
        attachment: str = "KAFKA",
        database_url: str = "",
        throttled: bool = False,
    ) -> Self:
        """Begin an account with one app that has Kafka, and the database if there is one."""
        account = Account.make(folder, broker, database_url=database_url, throttled=throttled)
        app = account.add_app(name)
        account.add_kafka(app, plan, prefix=prefix, attachment=attachment)
        if database_url:
            account.add_postgres(app, "essential-0")
        account.save()
        return cls(broker, folder, name)

    @classmethod
    def empty(
        cls, broker: HerokuBroker, folder: Path, name: str, *, database_url: str = ""
    ) -> Self:
        """Begin an account with one app that has code (this Procfile's) and no add-on yet."""
        account = Account.make(folder, broker, database_url=database_url, throttled=False)
        account.release(account.add_app(name), read_procfile(ROOT / "Procfile").services)
        account.save()
        return cls(broker, folder, name)

    @property
    def app(self) -> App:
        """The app as it stands now."""
        return Account.load(self.folder).app(self.name)

    @property
    def env(self) -> dict[str, str]:
        """The variables of the app: KAFKA_URL and what belongs to it, DATABASE_URL."""
        return dict(self.app.config)

    @property
    def prefix(self) -> str:
        """What the app's names begin with on the broker; empty on a dedicated plan.

        It, the principal and the clients are those of the first Kafka, where another was added.
        """
        return self.app.clusters()[0].prefix

    @property
    def principal(self) -> str:
        """The app's certificate, as rights name it."""
        return self.app.clusters()[0].principal

    @property
    def clients(self) -> dict[str, str]:
        """Settings for a confluent_kafka client that is the app."""
        cluster = self.app.clusters()[0]
        renamed = {
            name.replace(f"{cluster.attachment}_", "KAFKA_", 1): value
            for name, value in self.env.items()
        }
        return {"log_level": "0", **client_settings(renamed)}

    @property
    def administrators(self) -> dict[str, str]:
        """Settings for a client that may do everything: for what a test must see or set up."""
        return {"log_level": "0", "bootstrap.servers": self.broker.admin_bootstrap}

    def run(self, command: str) -> list[str]:
        """Do `heroku COMMAND` and return its lines; raise StackError where it is refused."""
        arguments = shlex.split(command)
        if arguments[:1] == ["heroku"]:
            del arguments[0]
        if not any(re.match(r"-a|--app\b", each) for each in arguments):
            arguments += ["--app", self.name]
        return run(arguments, self.folder)

    def shell(
        self, script: str, extra: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a script of `heroku` commands as a person would, by /bin/sh."""
        env = {**environment(self.app, Account.load(self.folder)), **(extra or {})}
        return subprocess.run(
            ["/bin/sh", "-eu", "-c", script],
            env=env, cwd=self.folder, capture_output=True, text=True, check=False,
            timeout=_SCRIPT_S,
        )  # fmt: skip

    def throttle(self, *, on: bool = True) -> None:
        """Put the plan's quotas into force, or take them away."""
        with Account.changing(self.folder) as account:
            account.throttle(account.app(self.name), on=on)
