"""The command ``streamcore plan``: what the installed services need, and the commands for it."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from streamcore.app import look_at_cluster
from streamcore.cluster import ClusterFacts
from streamcore.config import StreamsConfig
from streamcore.errors import (
    AuthorizationError,
    ConfigError,
    RetriableError,
    TopicError,
    TopologyError,
)
from streamcore.plan.difference import differences, fitting_plan
from streamcore.plan.document import Told, as_json
from streamcore.plan.lines import Form, Target, script, target_for
from streamcore.plan.rehearsal import Load, check_start
from streamcore.plan.report import show
from streamcore.plan.services import Service, load_services, shared_groups
from streamcore.plan.topics import Plan, make_plan
from streamcore.plan.traffic import estimate, throttle
from streamcore.runtime.outer_topics import PARTITIONS
from streamcore.service import tell_errors
from streamcore.settings import by_variable

_Services = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SERVICE]...", help="Services to plan for; all, if none is named."),
]
_Form = Annotated[
    Form | None,
    typer.Option(
        help="Whose command line. By default heroku on a dyno, with a KAFKA_PREFIX or with "
        "kafka+ssl://, and kafka elsewhere."
    ),
]
_App = Annotated[str | None, typer.Option(metavar="NAME", help="The Heroku application.")]
_AddOn = Annotated[
    str | None, typer.Option("--plan", metavar="NAME", help="The add-on's plan, as in basic-0.")
]
_Partitions = Annotated[int, typer.Option(min=1, help="Of topics that nothing else decides.")]
_Script = Annotated[
    bool,
    typer.Option("--script", help="Print only a shell script; it may be run any number of times."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_Diff = Annotated[
    bool,
    typer.Option(
        "--diff", help="Look at the cluster of KAFKA_URL: what is missing, or otherwise there."
    ),
]
_CommandConfig = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Client settings for kafka-topics.sh, as TLS needs."),
]
_Rate = Annotated[
    float, typer.Option(min=1, metavar="WORDS", help="Words a second to count bytes for.")
]
_WordsPerLine = Annotated[int, typer.Option(min=1, help="Of the lines that come in.")]
_DistinctWords = Annotated[int, typer.Option(min=1, max=1_000_000, help="Different words in them.")]
_Text = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Lines of your own to count bytes for, in place of words by chance."
    ),
]


def plan(  # noqa: PLR0913, PLR0917  # as many arguments as options
    services: _Services = None,
    form: _Form = None,
    app: _App = None,
    add_on: _AddOn = None,
    partitions: _Partitions = PARTITIONS,
    as_script: _Script = False,
    as_document: _Json = False,
    diff: _Diff = False,
    command_config: _CommandConfig = None,
    rate: _Rate = 1_000,
    words_per_line: _WordsPerLine = 10,
    distinct_words: _DistinctWords = 5_000,
    text: _Text = None,
) -> None:
    """Print what the services need of Kafka, what it costs, and the commands that create it.

    Nothing is created. With --diff the exit code is 1 if something is missing, or there otherwise,
    or if the broker does not tell whether it is there.
    """
    with tell_errors("streamcore plan"):
        if as_script and as_document:
            raise ConfigError(["--script and --json exclude each other"])
        found = load_services(services or (), offline=not diff)
        target = replace(
            target_for(_config(found), os.environ, form=form, plan=add_on, app=app),
            command_config=command_config,
        )
        facts = _facts(found) if diff else None
        told = _told(found, target, facts, partitions)
        check_start(found, told.plan)
        if as_script:
            _require_script(told, facts, is_guess=add_on is None)
            _print_script(told)
        else:
            load = Load(rate, words_per_line, distinct_words)
            told = _with_traffic(found, told, load if text is None else _of_text(load, text))
            _print(told, as_document=as_document)
        raise typer.Exit(1 if told.misfits else 0)


def _config(services: Sequence[Service]) -> StreamsConfig:
    problems = [
        f"{service.name} has another cluster or prefix than {services[0].name}; plan it by itself"
        for service in services
        if (service.config.brokers, service.config.prefix)
        != (services[0].config.brokers, services[0].config.prefix)
    ]
    if problems := [*problems, *shared_groups(services)]:
        raise ConfigError(problems)
    return services[0].config


def _facts(services: Sequence[Service]) -> ClusterFacts:
    wanted = [topic.wire for topic in make_plan(services).topics]
    groups = [service.names.group for service in services]
    try:
        facts = look_at_cluster(services[0].config, wanted, groups, probes=False)
    except ConfigError as error:  # as of a certificate that cannot be read
        settings = services[0].application.settings
        raise ConfigError([by_variable(settings, problem) for problem in error.problems]) from error
    if not facts.reachable:
        said = "; ".join(f"{one.address}: {one.said or one.reach}" for one in facts.brokers)
        raise RetriableError(f"no broker answers ({said})")
    return facts


def _told(
    services: Sequence[Service], target: Target, facts: ClusterFacts | None, partitions: int
) -> Told:
    if facts is None:
        planned: Plan = make_plan(services, partitions=partitions)
        differing = None
    else:
        planned = fitting_plan(services, facts, partitions)
        differing = differences(services, planned, facts, target)
    names = tuple(service.name for service in services)
    return Told(names, services[0].config.prefix, planned, target, differences=differing)


def _with_traffic(services: Sequence[Service], told: Told, load: Load) -> Told:
    try:
        traffic = estimate(services, told.plan, load)
        limit = throttle(services, told.plan, traffic, told.target.plan)
    except TopologyError as error:
        return replace(told, silence=str(error))
    return replace(told, traffic=traffic, throttle=limit)


def _of_text(load: Load, file: Path) -> Load:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"--text {file}: {error}"]) from error
    words = sum(len(line.split()) for line in lines)
    if not words:
        raise ConfigError([f"--text {file}: there is no word in it"])
    return replace(load, words_per_line=words / len(lines), text=tuple(lines))


def _require_script(told: Told, facts: ClusterFacts | None, *, is_guess: bool) -> None:
    """Refuse a script that would not do what it is for; half of it may have been run by then.

    :raises AuthorizationError: if the broker hides topics.
    :raises RetriableError: if it does not tell which groups are granted.
    :raises TopicError: if the add-on's plan has no room for the topics.
    """
    hidden = frozenset() if facts is None else facts.hidden
    if unseen := [topic.name for topic in told.plan.topics if topic.wire in hidden]:
        raise AuthorizationError(
            f"the broker refuses to speak of {', '.join(unseen)}, so nobody knows what is missing: "
            "the prefix is missing or another's; streamcore doctor looks at it"
        )
    if unsaid := [one for one in told.differences or () if one.undecided]:
        said = "; ".join(f"{one.name}: {one.detail}" for one in unsaid)
        raise RetriableError(f"nobody knows what is missing ({said})")
    if told.target.form == "heroku" and (problems := told.budget.problems):
        hint = "; name the plan with --plan if it is a larger one" if is_guess else ""
        raise TopicError("; ".join(problems) + hint)


def _print_script(told: Told) -> None:
    missing = told.differences
    names = None if missing is None else {one.name for one in missing if one.command is not None}
    topics = [one for one in told.plan.topics if names is None or one.name in names]
    groups = [one for one in told.plan.groups if names is None or one.name in names]
    typer.echo(script(topics, groups, told.target), nl=False)


def _print(told: Told, *, as_document: bool) -> None:
    if as_document:
        typer.echo(as_json(told))
    else:
        show(told, Console(highlight=False))
