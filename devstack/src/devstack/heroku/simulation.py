"""`make heroku-sim`: the broker, a database and the program `heroku`, until Ctrl-C."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from devstack.errors import StackError
from devstack.heroku.account import Account, environment, shell_assignments
from devstack.heroku.broker import HerokuBroker
from devstack.heroku.plans import plan_named
from devstack.heroku.sandbox import Sandbox
from devstack.lock import only_run_in
from devstack.options import DEFAULT_LINES_PER_S, RunOptions
from devstack.places import RUN
from devstack.postgres import Database
from devstack.processes import Child
from devstack.run import Run
from devstack.screen import make_screen
from devstack.stopping import StopSignals

APP = "local-sim"
PREFIX = "local-1234."
ENV_FILE = "heroku.env"

_TICK_S = 0.2
_SETUP_S = 120.0
# What a dyno of a fresh app would not have, but whoever starts the simulation might.
_FOREIGN = ("KAFKA_", "HEROKU_", "DATABASE_", "DYNO")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """What `make heroku-sim` was asked for."""

    plan: str = "basic-0"
    services: bool = False
    throttled: bool = True
    rate: float = DEFAULT_LINES_PER_S
    folder: Path = RUN
    kafka_port: int | None = None
    postgres_port: int | None = None


class Simulation:
    """A cluster that is made anew each time, as an add-on that was just created."""

    def __init__(
        self, options: SimulationOptions, say: Callable[[str], None], stop: StopSignals
    ) -> None:
        self._options = options
        self._plan = plan_named(options.plan)
        self._say = say
        self._stop = stop
        self._folder = options.folder / "heroku"
        self._env_file = options.folder / ENV_FILE

    def go(self) -> int:
        """Run until a signal, and return the exit code; with services, as `make run` ends."""
        with ExitStack() as cleanup:
            cleanup.enter_context(only_run_in(self._folder, "make heroku-sim"))
            for name in ("kafka", "postgres", "account", "services"):
                shutil.rmtree(self._folder / name, ignore_errors=True)
            broker = HerokuBroker(self._folder / "kafka", self._options.kafka_port)
            database = Database(self._folder / "postgres", self._options.postgres_port)
            cleanup.enter_context(broker)
            self._say(f"Kafka: up at {broker.bootstrap}, with TLS")
            cleanup.enter_context(database)
            self._say(f"PostgreSQL: up at 127.0.0.1:{database.port}")
            sandbox = Sandbox.make(
                broker, self._folder / "account", APP, plan=self._plan, prefix=PREFIX,
                database_url=database.url, throttled=self._options.throttled,
            )  # fmt: skip
            cleanup.callback(self._env_file.unlink, missing_ok=True)
            self._write_env_file(sandbox)
            self._tell()
            return self._run_services(sandbox) if self._options.services else self._wait(broker)

    def _write_env_file(self, sandbox: Sandbox) -> None:
        app = sandbox.app
        path = Account.load(sandbox.folder).path
        text = shell_assignments({**app.config, "HEROKU_APP": app.name})
        self._env_file.unlink(missing_ok=True)
        self._env_file.touch(mode=0o600)
        # An older program `heroku` must not answer in this shell.
        self._env_file.write_text(f'{text}PATH="{path}:$PATH"\n', encoding="utf-8")

    def _tell(self) -> None:
        file = self._env_file
        shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
        limits = "with its quotas" if self._options.throttled else "without quotas"
        self._say(f"app {APP}: heroku-kafka:{self._plan.name} {limits}, no topic, no group")
        self._say("variables (keys among them) and the program heroku, in another shell:")
        self._say(f"    set -a; . {'' if shown.is_absolute() else './'}{shown}; set +a")
        if self._options.services:
            return
        self._say("then, with .venv/bin on the PATH:")
        plan = f"streamcore plan --script --plan {self._plan.name}"
        for line in (f"python -m {plan} | sh", "python -m sink migrate", "python -m ingest"):
            self._say(f"    {line}")

    def _wait(self, broker: HerokuBroker) -> int:
        self._say("Ctrl-C stops and forgets everything")
        while not self._stop.asked:
            if broker.returncode is not None:
                raise StackError(f"Kafka has ended: {broker.tail()}")
            self._stop.wait(_TICK_S)
        return 0

    def _run_services(self, sandbox: Sandbox) -> int:
        account = Account.load(sandbox.folder)
        own = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
        env = {**own, **environment(sandbox.app, account)}
        options = RunOptions(env=env, rate=self._options.rate, folder=self._folder / "services")
        return _ServicesRun(options, self._stop, self._plan.name).go()


class _ServicesRun(Run):
    """The services of the Procfile as dynos; topics come from the plan's script."""

    def __init__(self, options: RunOptions, stop: StopSignals, plan: str) -> None:
        super().__init__(options, make_screen(), stop)
        self._plan = plan

    def _create_topics(self) -> None:
        create_topics_and_groups(self._env, self._plan)
        self._screen.say("topics and groups: created by the program heroku")

    def _child(self, name: str, command: str, env: Mapping[str, str]) -> Child:
        return super()._child(name, command, {**env, "DYNO": name})


def create_topics_and_groups(env: Mapping[str, str], plan: str) -> None:
    """Do what `streamcore plan` prints for these variables; raise StackError if it fails."""
    asked = [sys.executable, "-m", "streamcore", "plan", "--form", "heroku", "--script"]
    script = subprocess.run(
        [*asked, "--plan", plan], env=dict(env), capture_output=True, text=True, check=False,
        timeout=_SETUP_S,
    )  # fmt: skip
    if script.returncode == 0:
        script = subprocess.run(
            ["/bin/sh", "-eu"], input=script.stdout, env=dict(env), capture_output=True,
            text=True, check=False, timeout=_SETUP_S,
        )  # fmt: skip
    if script.returncode != 0:
        raise StackError(f"topics and groups cannot be created: {script.stderr.strip()[-400:]}")
