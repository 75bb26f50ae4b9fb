"""The command line of the local stack."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import devstack
from devstack import jars
from devstack.chaos.options import DEFAULT_RATE as DEFAULT_WORDS_RATE
from devstack.chaos.options import DEFAULT_SECONDS, GUARANTEES, ChaosOptions
from devstack.errors import StackError
from devstack.options import (
    DEFAULT_KAFKA_PORT,
    DEFAULT_LINES_PER_S,
    DEFAULT_POSTGRES_PORT,
    DEFAULT_RATE,
    RunOptions,
)
from devstack.places import ROOT, RUN
from devstack.procfile import parse_scale, read_env_file

app = typer.Typer(
    help="The local stack: a Kafka broker, PostgreSQL and the services of the Procfile.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"devstack {devstack.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    del version


@app.command()
def run(  # noqa: PLR0913, PLR0917 - one parameter for each option
    scale: Annotated[
        str, typer.Option(help='How many of which process: "aggregator_worker=2".')
    ] = "",
    text: Annotated[
        Path | None, typer.Option(help="The text to feed, once; else a sample, over and over.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Lines a second.")] = DEFAULT_RATE,
    until_counts: Annotated[
        bool, typer.Option("--until-counts", help="Stop by itself once counts are seen twice.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="Where the state is kept.")] = RUN,
    root: Annotated[Path, typer.Option(help="The folder with the Procfile and .env.")] = ROOT,
    kafka_port: Annotated[
        int, typer.Option(envvar="KAFKA_PORT", help="The port for Kafka.")
    ] = DEFAULT_KAFKA_PORT,
    postgres_port: Annotated[
        int, typer.Option(envvar="POSTGRES_PORT", help="The port for PostgreSQL.")
    ] = DEFAULT_POSTGRES_PORT,
) -> None:
    """Start everything, feed text and show the newest counts; Ctrl-C stops it all.

    With KAFKA_URL or DATABASE_URL set, that server is used and none is started.
    """
    # Imported late: `--help` needs neither the clients nor the screen.
    from devstack.run import Run  # noqa: PLC0415
    from devstack.screen import make_screen  # noqa: PLC0415
    from devstack.stopping import StopSignals  # noqa: PLC0415

    stop = StopSignals()
    stop.install()
    options = RunOptions(
        env={**read_env_file(root / ".env"), **os.environ},
        scale=parse_scale(scale),
        text=text,
        rate=rate,
        until_counts=until_counts,
        root=root.resolve(),
        folder=folder.resolve(),
        kafka_port=kafka_port,
        postgres_port=postgres_port,
    )
    code = Run(options, make_screen(), stop).go()
    raise typer.Exit(code)


@app.command()
def chaos(
    seconds: Annotated[int, typer.Option(help="How long there are faults.")] = DEFAULT_SECONDS,
    guarantee: Annotated[
        str, typer.Option(help="exactly_once_v2, or at_least_once, which tells the surplus.")
    ] = GUARANTEES[0],
    rate: Annotated[int, typer.Option(help="Words a second.")] = DEFAULT_WORDS_RATE,
    seed: Annotated[int, typer.Option(help="Chooses order and victims.")] = 1,
    folder: Annotated[Path, typer.Option(help="Where logs and state are kept.")] = RUN / "chaos",
) -> None:
    """Run the word count on servers of its own under faults, and compare with a plain recount.

    Exits 1 when a count is wrong (with at_least_once: too low), or when nothing was proven.
    """
    from devstack.chaos.trial import Trial  # noqa: PLC0415
    from devstack.stopping import StopSignals  # noqa: PLC0415

    stop = StopSignals()
    stop.install()
    options = ChaosOptions(
        seconds=seconds, guarantee=guarantee, rate=rate, seed=seed, folder=folder.resolve()
    )
    raise typer.Exit(Trial(options, typer.echo, stop).go())


@app.command("heroku-sim")
def heroku_sim(
    plan: Annotated[str, typer.Option(help="basic-0, basic-1, standard-0, ...")] = "basic-0",
    services: Annotated[
        bool, typer.Option("--services", help="Create topics and groups, run all services.")
    ] = False,
    quotas: Annotated[bool, typer.Option(help="Throttle as the plan does.")] = True,
    rate: Annotated[
        float, typer.Option(help="Lines a second, with --services.")
    ] = DEFAULT_LINES_PER_S,
    folder: Annotated[Path, typer.Option(help="Where heroku.env and the state are kept.")] = RUN,
    kafka_port: Annotated[
        int | None, typer.Option(envvar="KAFKA_PORT", help="The port for Kafka; else any.")
    ] = None,
    postgres_port: Annotated[
        int | None, typer.Option(envvar="POSTGRES_PORT", help="That for PostgreSQL; else any.")
    ] = None,
) -> None:
    """A broker with TLS, rights and quotas as on Heroku, and the commands of `heroku`; Ctrl-C ends.

    Each start is a fresh add-on: no topics, no groups, new certificates.
    """
    from devstack.heroku.simulation import Simulation, SimulationOptions  # noqa: PLC0415
    from devstack.stopping import StopSignals  # noqa: PLC0415

    stop = StopSignals()
    stop.install()
    options = SimulationOptions(
        plan=plan,
        services=services,
        throttled=quotas,
        rate=rate,
        folder=folder.resolve(),
        kafka_port=kafka_port,
        postgres_port=postgres_port,
    )
    raise typer.Exit(Simulation(options, typer.echo, stop).go())


@app.command()
def prepare() -> None:
    """Fetch what Apache Kafka is made of, check each file, and make its starts quick."""
    from devstack.training import train  # noqa: PLC0415

    jars.KAFKA.fetch(lambda done, of, name: typer.echo(f"  {done}/{of} {name}"))
    train()


def main() -> None:
    """Run the command line; what goes wrong is said in one line."""
    try:
        app()
    except StackError as problem:
        typer.echo(f"error: {problem}", err=True)
        sys.exit(1)
    except OSError as problem:
        typer.echo(f"error: {problem.filename or ''}: {problem.strerror or problem}", err=True)
        sys.exit(1)
