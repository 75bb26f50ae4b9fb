"""The engine's command line: ``python -m streamcore``."""

import importlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from streamcore.doctor.command import doctor
from streamcore.errors import TopologyError
from streamcore.plan.command import plan
from streamcore.service import tell_errors, version_option
from streamcore.topology.graph import Topology

app = typer.Typer(
    name="streamcore",
    help="Stream processing on Apache Kafka.",
    no_args_is_help=True,
    add_completion=False,
)


app.command()(doctor)
app.command()(plan)


@app.callback()
def main(_version: bool = version_option("streamcore")) -> None:
    """Stream processing on Apache Kafka."""


@app.command()
def describe(
    topology: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="A Topology, or a function without arguments that returns one.",
        ),
    ],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
) -> None:
    """Print a topology as Kafka Streams prints it."""
    with tell_errors("streamcore"):
        found = _load(topology)
        typer.echo(found.mermaid() if mermaid else found.describe())


def _load(where: str) -> Topology:
    module_name, _, name = where.partition(":")
    if not module_name or not name:
        raise TopologyError(f"{where!r} is not MODULE:NAME")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module_name), name)
        if callable(found):
            found = found()
    except (ImportError, AttributeError, TypeError) as error:
        raise TopologyError(f"{where}: {error}") from error
    if not isinstance(found, Topology):
        raise TopologyError(f"{where} is a {type(found).__name__} and no Topology")
    return found
