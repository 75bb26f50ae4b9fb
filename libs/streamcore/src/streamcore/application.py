"""Application: what a service tells of itself, so that commands can look at several at once.

A package announces its own by an entry point of the group ``streamcore.applications``; the engine
knows no service by name.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from streamcore.errors import ConfigError
from streamcore.findings import Finding
from streamcore.heroku import App
from streamcore.settings import ENTRY_POINTS, ServiceSettings
from streamcore.topology.graph import Topology


def _nothing(_settings: Any, _app: App | None) -> Iterable[Finding]:
    return ()


@dataclass(frozen=True, slots=True)
class Application:
    """A service: its settings, its topology, and what it can check without changing anything.

    ``build`` takes the loaded settings and returns the topology; nothing in it is run. ``checks``
    is told which app commands are for, None where Heroku's are of no use; a ``ConfigError`` of it
    may carry the command that mends it as a note.
    """

    name: str
    settings: type[ServiceSettings]
    build: Callable[[Any], Topology]
    checks: Callable[[Any, App | None], Iterable[Finding]] = _nothing


def applications(names: Sequence[str] = ()) -> tuple[Application, ...]:
    """Return the installed applications, in the order asked for; all of them by name if not asked.

    :raises ConfigError: if one of the names is not there.
    """
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    if problems := [
        f"{name} is no installed application; there is {', '.join(sorted(found)) or 'none'}"
        for name in names
        if name not in found
    ]:
        raise ConfigError(problems)
    loaded = [found[name].load() for name in (names or sorted(found))]
    assert all(isinstance(application, Application) for application in loaded)
    return tuple(loaded)
