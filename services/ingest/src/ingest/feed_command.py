"""``python -m ingest feed``: options to a running feed, and signals to its orderly end."""

import signal
import time
from functools import partial
from threading import Event

import typer

from ingest.feed import Feed, Pacer
from ingest.progress import progress
from ingest.settings import Settings
from ingest.sources import Text
from ingest.topology import build
from streamcore.app import open_producer
from streamcore.service import tell_errors
from streamcore.settings import by_variable, load


def feed(
    files: list[str] | None = typer.Argument(None, metavar="FILE|-", show_default=False),
    sample: bool = typer.Option(False, "--sample", help="Feed English text that Python brings."),
    rate: float = typer.Option(0, "--rate", min=0, help="Lines a second; 0: as fast as can be."),
    follow: bool = typer.Option(False, "--follow", help="Wait for more at the end of the file."),
    loop: bool = typer.Option(False, "--loop", help="Begin anew at the end, until stopped."),
    encoding: str = typer.Option("utf-8", "--encoding", help="Of the files, as Python names it."),
) -> None:
    """Write the lines of files, of standard input (-) or of the sample into the lines topic."""
    if bool(files) == sample:
        raise typer.BadParameter("name files, or - for standard input, or give --sample")
    text = Text(tuple(files or ()), encoding, follow=follow, loop=loop)
    with tell_errors("ingest feed", partial(by_variable, Settings)):
        text.check()
        _run(text, rate or None)


def _run(text: Text, rate: float | None) -> None:
    stopped = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    settings, config = load(Settings)
    topic = settings.lines_topic
    producer = open_producer(config, build(settings))
    try:
        with progress(topic, _now_ms) as told:
            feed = Feed(producer, topic, Pacer(rate), _now_ms, stopped, told)
            sent = feed.run(text.lines(stopped))
    finally:
        producer.close()
    typer.echo(f"{sent:,} lines are in {topic}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
