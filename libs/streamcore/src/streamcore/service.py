"""What the command lines of services share: the version, and errors told in one line each."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

from streamcore.errors import ConfigError, StreamsError


@contextmanager
def tell_errors(program: str) -> Iterator[None]:
    """End the program with a line on stderr for each problem, instead of a traceback.

    Notes on an error (``add_note``) follow it, each on a line of its own: the commands that mend
    it. Exit code 2 for settings, 1 for everything else that the engine raises.
    """
    try:
        yield
    except ConfigError as error:
        sys.stderr.writelines(f"{program}: {problem}\n" for problem in error.problems)
        raise SystemExit(2) from None
    except StreamsError as error:
        notes = getattr(error, "__notes__", ())
        sys.stderr.write("\n".join([f"{program}: {error}", *notes, ""]))
        raise SystemExit(1) from None


def version_option(package: str) -> Any:
    """Return typer's ``--version`` for the installed package of that name."""

    def show(asked: bool) -> None:
        if asked:
            typer.echo(f"{package} {_version_of(package)}")
            raise typer.Exit

    return typer.Option(
        False, "--version", callback=show, is_eager=True, help="Show the version and exit."
    )


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "(not installed)"
