"""The aggregator as the engine's commands see it."""

from aggregator.settings import Settings
from aggregator.topology import build
from streamcore.application import Application

application = Application("aggregator", Settings, build)
