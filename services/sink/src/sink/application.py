"""The sink as the engine's commands see it."""

from typing import NoReturn

from sink.checks import checks
from sink.settings import Settings
from sink.topology import build
from streamcore.application import Application
from streamcore.topology.graph import Topology


def topology(settings: Settings) -> Topology:
    """Return the topology with a store that is never opened: it is looked at, not run."""
    return build(settings, _never)


def _never() -> NoReturn:
    raise AssertionError("a description runs nothing")


application = Application("sink", Settings, topology, checks)
