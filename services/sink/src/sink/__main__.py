"""The sink's command line: no command runs the worker until it is told to stop."""

from functools import partial

import typer

from sink.application import topology
from sink.connection import MIGRATION, Database
from sink.migrate import migrate as bring_up_to_date
from sink.settings import Settings
from sink.store import PostgresSupplier
from sink.topology import build
from streamcore.app import StreamsApp
from streamcore.service import tell_errors, version_option
from streamcore.settings import by_variable, load
from streamcore.topology.naming import Names

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@cli.callback(invoke_without_command=True)
def run(context: typer.Context, _version: bool = version_option("streamcore-sink")) -> None:
    """Write the counts to PostgreSQL. Settings are environment variables; see .env.example."""
    if context.invoked_subcommand is None:
        with tell_errors("sink", partial(by_variable, Settings)):
            settings, config = load(Settings)
            group = Names(config.prefix, config.application_id).group
            supplier = PostgresSupplier(Database(settings.address), group)
            raise typer.Exit(StreamsApp(build(settings, supplier), config).run())


@cli.command()
def migrate(
    wait_s: float = typer.Option(10.0, help="For how long a database that is away is asked again."),
) -> None:
    """Make or change the tables in the sink's database; two at once are safe.

    It is the one that the worker writes to: of SINK_DATABASE_URL, of the attachment that
    DATABASE_ATTACHMENT names, of DATABASE_URL, or the only other address there is.
    """
    with tell_errors("sink"):
        settings, _ = load(Settings, offline=True)
        database = Database(settings.address, MIGRATION)
        revision = bring_up_to_date(database, wait_s, _tell)
        database.close()
        typer.echo(f"sink: the tables are at revision {revision}")


@cli.command()
def describe() -> None:
    """Print the topology, as Kafka Streams prints it."""
    with tell_errors("sink"):
        settings, _ = load(Settings, offline=True)
        typer.echo(topology(settings).describe())


def _tell(reason: str) -> None:
    typer.echo(f"sink: {reason}; it is asked again", err=True)


if __name__ == "__main__":
    cli(prog_name="python -m sink")
