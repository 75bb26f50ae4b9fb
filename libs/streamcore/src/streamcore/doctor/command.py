"""The command ``streamcore doctor``."""

import os
from typing import Annotated

import typer
from rich.console import Console

from streamcore.app import look_at_cluster
from streamcore.doctor.examination import Asked, examine
from streamcore.doctor.report import as_json, exit_code, show


def doctor(
    services: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SERVICE]...", help="Services to look at; all, if none is named."),
    ] = None,
    *,
    document: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    release: Annotated[
        bool,
        typer.Option(
            "--release",
            help="For a release phase: what is missing is a warning where workers wait for it.",
        ),
    ] = False,
    plan: Annotated[
        str | None, typer.Option(metavar="NAME", help="The add-on's plan, as in basic-0.")
    ] = None,
    timeout_s: Annotated[
        float, typer.Option(min=1.0, help="For how long the cluster is asked, at most.")
    ] = 15.0,
) -> None:
    """Look for what would keep the services from working here; nothing is changed.

    Exit code 0: nothing failed; 1: something did; 2: settings are wrong.
    """
    asked = Asked(tuple(services or ()), plan, release, timeout_s)
    found = examine(asked, look_at_cluster, os.environ)
    code = exit_code(found.findings, settings_are_wrong=found.settings_are_wrong)
    if document:
        typer.echo(as_json(found.findings, code))
    else:
        show(found.findings, Console(highlight=False))
    raise typer.Exit(code)
