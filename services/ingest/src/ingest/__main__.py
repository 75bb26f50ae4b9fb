"""Ingest's command line: no command runs the worker; ``feed`` writes lines for it to split."""

from functools import partial

import typer

from ingest.feed_command import feed
from ingest.settings import Settings
from ingest.topology import build
from streamcore.app import StreamsApp
from streamcore.service import tell_errors, version_option
from streamcore.settings import by_variable, load

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
cli.command()(feed)


@cli.callback(invoke_without_command=True)
def run(context: typer.Context, _version: bool = version_option("streamcore-ingest")) -> None:
    """Split lines into words. Settings are environment variables; see .env.example."""
    if context.invoked_subcommand is None:
        with tell_errors("ingest", partial(by_variable, Settings)):
            settings, config = load(Settings)
            raise typer.Exit(StreamsApp(build(settings), config).run())


@cli.command()
def describe() -> None:
    """Print the topology, as Kafka Streams prints it."""
    with tell_errors("ingest"):
        typer.echo(build(load(Settings, offline=True)[0]).describe())


if __name__ == "__main__":
    cli(prog_name="python -m ingest")
