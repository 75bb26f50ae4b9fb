"""Examination: settings read, the cluster looked at, the services' own checks run; all findings."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from streamcore.cluster import ClusterFacts
from streamcore.config import StreamsConfig
from streamcore.doctor.case import Case
from streamcore.doctor.diagnosis import diagnose
from streamcore.errors import ConfigError, StreamsError
from streamcore.findings import Finding
from streamcore.heroku import App
from streamcore.plan.lines import target_for
from streamcore.plan.services import (
    Service,
    installed,
    load_services,
    readers_last,
    shared_groups,
)
from streamcore.plan.topics import make_plan
from streamcore.settings import by_variable, connection_variables

_OF_THE_CONNECTION = (
    "brokers",
    "prefix",
    "kafka_trusted_cert",
    "kafka_client_cert",
    "kafka_client_cert_key",
)


class Look(Protocol):
    """Look at a cluster; raises ConfigError where clients cannot be made, and nothing else."""

    def __call__(
        self,
        config: StreamsConfig,
        topics: Iterable[str],
        groups: Iterable[str],
        *,
        timeout_s: float,
    ) -> ClusterFacts: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command was asked: ``plan`` is the add-on's, None if nobody has named it."""

    services: Sequence[str] = ()
    plan: str | None = None
    release: bool = False
    timeout_s: float = 15.0


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings, and whether settings are among what is wrong."""

    findings: tuple[Finding, ...]
    settings_are_wrong: bool


def examine(asked: Asked, look: Look, environ: Mapping[str, str]) -> Examination:
    """Return everything that was found; nothing is changed.

    Settings that cannot be read keep their own service from being looked at, and no other.
    """
    services, wrong = _loaded(asked)
    wrong += shared_groups(services)
    findings = [Finding("failure", "settings", problem) for problem in wrong]
    if services:
        names = ", ".join(service.name for service in services)
        findings.append(Finding("ok", "settings", f"{names} can be read"))
    with ThreadPoolExecutor(max_workers=1 + len(services)) as pool:
        checks = [pool.submit(_own_checks, service, environ) for service in services]
        for group in _by_connection(services):
            try:
                findings += diagnose(_case(group, asked, look, environ))
            except ConfigError as error:  # an unknown plan, or a certificate that cannot be read
                settings = group[0].application.settings
                problems = [by_variable(settings, problem) for problem in error.problems]
                wrong += problems
                findings += [Finding("failure", "settings", problem) for problem in problems]
    for check in checks:
        found, problems = check.result()
        findings += found
        wrong += problems
    return Examination(tuple(findings), bool(wrong))


def _loaded(asked: Asked) -> tuple[tuple[Service, ...], list[str]]:
    loaded: list[Service] = []
    problems: list[str] = []

    def attempt(call: Callable[[], Iterable[Service]]) -> None:
        try:
            loaded.extend(call())
        except ConfigError as error:
            problems.extend(error.problems)
        except StreamsError as error:
            problems.append(str(error))

    try:
        names = [application.name for application in installed(asked.services)]
    except ConfigError as error:
        return (), list(error.problems)
    for name in names:
        attempt(lambda name=name: load_services([name]))  # type: ignore[misc]
    # Most problems are of the connection, and the same for all.
    return readers_last(loaded), list(dict.fromkeys(problems))


def _by_connection(services: Sequence[Service]) -> Iterator[tuple[Service, ...]]:
    groups: dict[tuple[object, ...], list[Service]] = {}
    for service in services:
        config = service.config
        values = [getattr(config, name) for name in _OF_THE_CONNECTION]
        key = (*values, tuple(sorted(config.kafka_settings.items())))
        groups.setdefault(key, []).append(service)
    return (tuple(group) for group in groups.values())


def _case(
    services: tuple[Service, ...], asked: Asked, look: Look, environ: Mapping[str, str]
) -> Case:
    # Transactions are asked for in the name of the first, and with its timeouts.
    first = next((one for one in services if one.config.exactly_once), services[0])
    config = first.config
    target = target_for(config, environ, plan=asked.plan)
    plan = make_plan(services)
    facts = look(
        config,
        [topic.wire for topic in plan.topics],
        dict.fromkeys([first.names.group, *(group.wire for group in plan.groups)]),
        timeout_s=asked.timeout_s,
    )
    variables = connection_variables(first.application.settings)
    return Case(services, facts, target, asked.release, asked.plan is not None, variables)


def _own_checks(service: Service, environ: Mapping[str, str]) -> tuple[list[Finding], list[str]]:
    """Return what a service says of itself, and which of its settings are wrong."""
    found: list[Finding] = []
    target = target_for(service.config, environ)
    app = App(target.app) if target.form == "heroku" else None
    try:
        found += service.application.checks(service.settings, app)
    except ConfigError as error:
        command = next(iter(getattr(error, "__notes__", ())), None)
        found += [Finding("failure", "settings", problem, command) for problem in error.problems]
        return found, list(error.problems)
    except StreamsError as error:
        found.append(Finding("failure", service.name, str(error)))
    return found, []
