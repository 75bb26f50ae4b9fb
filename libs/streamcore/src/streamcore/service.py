"""What the command lines of services share: the version, and errors told in one line each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

from streamcore.adapters.log_output import tell_end
from streamcore.errors import ConfigError, StreamsError


@contextmanager
def tell_errors(program: str, say: Callable[[str], str] = str) -> Iterator[None]:
    """End the program with a line on stderr for each problem, instead of a traceback.

    Notes on an error (``add_note``) follow it, each on a line of its own: the commands that mend
    it. Exit code 2 for settings, 1 for everything else that the engine raises. ``say`` puts a
    problem into the words of whoever started the program. Once the program logs for machines, an
    event of the log stands for a problem's line.
    """
    try:
        yield
    except StreamsError as error:
        wrong = error.problems if isinstance(error, ConfigError) else ()
        commands, code = getattr(error, "__notes__", ()), 2 if wrong else 1
        tell_end(program, map(say, wrong or [str(error)]), commands, exit_code=code)
        raise SystemExit(code) from None


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
