"""How far a long feed is: a live line on a terminal, a plain line now and then elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

_EVERY_MS = 10_000


@contextmanager
def progress(topic: str, now_ms: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    """Give a function to call with the number of lines sent so far; it writes to stderr."""
    console = Console(stderr=True)
    began_ms = now_ms()

    def line(sent: int) -> str:
        seconds = max(1, now_ms() - began_ms) / 1000
        return f"{topic}: {sent:,} lines, {sent / seconds:,.0f} a second"

    if console.is_terminal:
        with console.status(f"{topic}: connecting") as status:
            yield lambda sent: status.update(line(sent))
        return

    due_ms = began_ms + _EVERY_MS

    def plain(sent: int) -> None:
        nonlocal due_ms
        if now_ms() >= due_ms:
            due_ms = now_ms() + _EVERY_MS
            console.print(line(sent), highlight=False, soft_wrap=True)

    yield plain
