"""What a person sees of the counts."""

from datetime import UTC, datetime, timedelta

from rich.console import Console

from devstack.counts import Snapshot, Window
from devstack.screen import PLAIN_AGAIN_S, PLAIN_EVERY_S, LiveScreen, PlainScreen

START = datetime(2026, 1, 2, 3, 4, 50, tzinfo=UTC)


def snapshot(*tops: tuple[tuple[str, int], ...]) -> Snapshot:
    windows = tuple(
        Window(
            START - timedelta(seconds=10 * back),
            START - timedelta(seconds=10 * back - 10),
            top,
            len(top),
            sum(count for _, count in top),
        )
        for back, top in enumerate(tops)
    )
    return Snapshot(windows, START)


def test_plain_lines_show_the_newest_window_and_not_too_often() -> None:
    lines: list[str] = []
    screen = PlainScreen(lines.append)
    screen.show(snapshot((("the", 7), ("a", 2))), "up: x", 100.0)
    screen.show(snapshot((("the", 8),)), "up: x", 100.0 + PLAIN_EVERY_S / 2)
    screen.show(snapshot((("the", 9),)), "up: x", 100.0 + PLAIN_EVERY_S)
    assert lines == [
        "03:04:50-03:05:00 the=7 a=2 | 2 words, 9 counted",
        "03:04:50-03:05:00 the=9 | 1 words, 9 counted",
    ]


def test_a_plain_line_that_has_not_changed_is_repeated_now_and_then() -> None:
    lines: list[str] = []
    screen = PlainScreen(lines.append)
    for second in range(int(PLAIN_AGAIN_S) + 2):
        screen.show(snapshot((("the", 7),)), "up: x", 100.0 + second)
    assert lines == ["03:04:50-03:05:00 the=7 | 1 words, 7 counted"] * 2


def test_plain_lines_say_why_there_is_nothing_to_show() -> None:
    lines: list[str] = []
    PlainScreen(lines.append).show(None, "up: x", 0.0)
    PlainScreen(lines.append).show(snapshot(), "up: x", 0.0)
    assert lines == ["no counts: the database does not answer | up: x", "no counts yet | up: x"]


def test_a_word_cannot_command_the_terminal() -> None:
    lines: list[str] = []
    PlainScreen(lines.append).show(snapshot((("\x1b[2J", 1),)), "", 0.0)
    assert lines == ["03:04:50-03:05:00 \\u001b[2J=1 | 1 words, 1 counted"]


def test_the_table_has_a_column_for_each_window_and_shows_problems_below() -> None:
    console = Console(force_terminal=True, width=100, record=True, no_color=True)
    screen = LiveScreen(console)
    screen.problem("sink_worker.1: level=warning event=slow")
    screen.show(snapshot((("the", 7), ("a", 2)), (("zwei", 11),)), "up: sink_worker.1", 0.0)
    screen.close()
    text = console.export_text()
    assert "03:04:50-03:05:00" in text
    assert "03:04:40-03:04:50" in text
    assert "7 the" in text
    assert "11 zwei" in text
    assert text.index("up: sink_worker.1") < text.index("! sink_worker.1: level=warning")
