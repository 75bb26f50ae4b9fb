"""The ingest as the engine's commands see it."""

from ingest.settings import Settings
from ingest.topology import build
from streamcore.application import Application

application = Application("ingest", Settings, build)
