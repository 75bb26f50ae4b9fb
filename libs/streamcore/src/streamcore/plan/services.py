"""Services: the installed applications with their settings, ready to be looked at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streamcore.application import Application, applications
from streamcore.config import StreamsConfig
from streamcore.errors import ConfigError
from streamcore.settings import ServiceSettings, connection_variables, load
from streamcore.topology.graph import Topology
from streamcore.topology.naming import Names


@dataclass(frozen=True, slots=True)
class Service:
    """An application as its environment has it."""

    name: str
    application: Application
    settings: ServiceSettings
    config: StreamsConfig
    topology: Topology

    @property
    def names(self) -> Names:
        """Names on the broker."""
        return Names(self.config.prefix, self.config.application_id)

    @property
    def bare_names(self) -> Names:
        """Names without the prefix, as Heroku's command line takes them."""
        return Names("", self.bare(self.config.application_id))

    def bare(self, name: str) -> str:
        """Return a name of a topic, an application or a group without the prefix."""
        return self.names.bare(name)

    @property
    def dead_letters(self) -> str | None:
        """The dead-letter topic, if one is set, as it was written."""
        return self.config.dead_letter_topic


def installed(names: Sequence[str] = ()) -> tuple[Application, ...]:
    """Return the installed applications that were asked for, each once; all, if none was.

    :raises ConfigError: if there is none, or not one that was asked for.
    """
    found = applications(tuple(dict.fromkeys(names)))
    if not found:
        raise ConfigError(["no application is installed"])
    return found


def load_services(names: Sequence[str] = (), *, offline: bool = False) -> tuple[Service, ...]:
    """Return the installed applications that were asked for (all, if none was), readers last.

    ``offline``: no broker need be named. Nothing is run.

    :raises ConfigError: with every problem of all of them, or if one, or any, is not installed.
    """
    found: list[Service] = []
    problems: list[str] = []
    for application in installed(names):
        try:
            settings, config = load(application.settings, offline=offline)
            if offline:  # whose prefix and plan it is must be known even so
                connection_variables(application.settings)
        except ConfigError as error:
            problems += error.problems
            continue
        topology = application.build(settings)
        found.append(Service(application.name, application, settings, config, topology))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return readers_last(found)


def shared_groups(services: Sequence[Service]) -> Iterator[str]:
    """Yield a line for each consumer group that several services would be members of.

    Each would be given partitions of topics that it does not know.
    """
    by_group: dict[tuple[str, str], list[str]] = {}
    for service in services:
        at = (service.config.brokers.servers, service.names.group)
        by_group.setdefault(at, []).append(service.name)
    for (_, group), names in by_group.items():
        if len(names) > 1:
            variables = " or ".join(f"{name.upper()}_APPLICATION_ID" for name in names)
            yield (
                f"{' and '.join(names)} have the same consumer group {group}, and each service "
                f"needs its own; set {variables} to another name"
            )


def readers_last(services: Sequence[Service]) -> tuple[Service, ...]:
    """Return them so that whoever writes a topic stands before whoever reads it, where it can be.

    Partition counts follow from what is upstream.
    """
    waiting, ordered = list(services), []
    while waiting:
        free = next((one for one in waiting if not _waits(one, waiting)), waiting[0])
        waiting.remove(free)
        ordered.append(free)
    return tuple(ordered)


def _waits(service: Service, others: Sequence[Service]) -> bool:
    read = {service.names.topic(topic) for topic in service.topology.source_topics}
    written = {
        other.names.topic(topic)
        for other in others
        if other is not service
        for topic in other.topology.sink_topics
    }
    return bool(read & written)
