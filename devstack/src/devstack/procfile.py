"""Which processes the Procfile asks for, as honcho reads it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from honcho import environ

from devstack.errors import StackError

RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Instance:
    """One process to start: `name` is `aggregator_worker.2`, `env` what honcho adds for it."""

    name: str
    command: str
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Procfile:
    """The lines of a Procfile, in its order."""

    commands: Mapping[str, str]

    @property
    def release(self) -> str | None:
        """The command that prepares a release, such as a migration."""
        return self.commands.get(RELEASE)

    @property
    def services(self) -> tuple[str, ...]:
        """The names of the long-running processes."""
        return tuple(name for name in self.commands if name != RELEASE)

    def instances(self, scale: Mapping[str, int]) -> list[Instance]:
        """Return the processes to start, one of each service unless `scale` says otherwise.

        Raises StackError when `scale` names what is not in the Procfile.
        """
        for name in scale:
            if name not in self.services:
                known = ", ".join(self.services) or "nothing"
                raise StackError(f"SCALE names {name!r}, but the Procfile has {known}")
        running = {name: self.commands[name] for name in self.services}
        expanded: list[Any] = environ.expand_processes(running, concurrency=dict(scale))
        return [Instance(each.name, each.cmd, dict(each.env)) for each in expanded]


def read_procfile(path: Path) -> Procfile:
    """Read a Procfile; raise StackError when it is missing or starts nothing."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise StackError(f"{path} cannot be read: {problem.strerror}") from None
    try:
        commands = dict(environ.parse_procfile(text).processes)
    except AssertionError as problem:
        raise StackError(f"{path}: {problem}") from None
    found = Procfile(commands)
    if not found.services:
        raise StackError(f"{path} has no line 'name: command'")
    return found


def parse_scale(text: str) -> dict[str, int]:
    """Return how many of which process; "a=2 b=0" and "a=2,b=0" mean the same.

    >>> parse_scale("aggregator_worker=2, sink_worker=0")
    {'aggregator_worker': 2, 'sink_worker': 0}
    """
    scale = {}
    for word in re.split(r"[\s,]+", text.strip()):
        if not word:
            continue
        found = re.fullmatch(r"([A-Za-z0-9_-]+)=(\d{1,3})", word)
        if found is None:
            raise StackError(f"SCALE: {word!r} is not NAME=NUMBER")
        scale[found[1]] = int(found[2])
    return scale


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of a `.env` file; no file, no variables."""
    if not path.is_file():
        return {}
    return dict(environ.parse(path.read_text(encoding="utf-8")))
