"""The plan as tables, for people."""

import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamcore import heroku
from streamcore.plan.difference import Difference
from streamcore.plan.document import Told
from streamcore.plan.lines import heroku_topic, lines
from streamcore.plan.topics import PlannedTopic

BAR_WIDTH: Final = 24
WIDE: Final = 100
NAME_WIDTH: Final = 26

_MARKS = {"missing": "red", "other": "yellow", "unknown": "cyan", "extra": "magenta"}


def show(told: Told, console: Console) -> None:
    """Print everything, at the width of the console; commands are never broken."""
    _title(console, f"Plan for {', '.join(told.services)}")
    console.print(_topics(told, console.width))
    groups = ", ".join(group.name for group in told.plan.groups)
    console.print(Text(f"Consumer groups: {groups}"))
    for warning in told.plan.warnings:
        console.print(Text(f"Warning: {warning}", "yellow"))
    if told.differences is not None:
        _show_differences(told.differences, console)
    _show_commands(told, console)
    if told.target.form == "heroku":
        _title(console, "Partitions x replicas on each plan")
        console.print(_budgets(told))
        _footnotes(told, console)
    _show_traffic(told, console)


def _title(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, "bold"))


def _table(*columns: str) -> Table:
    """Return a table; columns that begin with ``>`` are figures."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right,
        )
    return table


def _topics(told: Told, width: int) -> Table:
    table = _table("topic", ">partitions", "kept", "from, to")
    for topic in told.plan.topics:
        table.add_row(
            _broken(topic.name, width), str(topic.partitions), _kept(topic, told), _flow(topic)
        )
    return table


def _broken(name: str, width: int) -> str:
    """Return a long name with a line end behind one of its hyphens, if the console is narrow."""
    if width >= WIDE:
        return name
    return "\n  ".join(textwrap.wrap(name, NAME_WIDTH, break_long_words=False))


def _kept(topic: PlannedTopic, told: Told) -> str:
    if told.target.form == "kafka":
        keep = topic.settings.get("retention.ms")
        if "compact" in topic.settings.get("cleanup.policy", ""):
            return "compacted"
        return "until read" if keep in {None, "-1"} else heroku.duration(int(keep or 0))
    keep_ms = heroku_topic(topic, told.target.plan).retention_ms
    times = [] if keep_ms is None else [heroku.duration(keep_ms)]
    return ", ".join([*times, *(["compacted"] if topic.compaction else [])])


def _flow(topic: PlannedTopic) -> str:
    if topic.kind == "changelog":
        return f"state of {', '.join(topic.writers)}"
    writers, readers = ", ".join(topic.writers) or "outside", ", ".join(topic.readers) or "outside"
    return f"{writers} → {readers}" if writers != readers else f"within {writers}"


def _show_commands(told: Told, console: Console) -> None:
    if told.differences is None:
        commands = lines(told.plan.topics, told.plan.groups, told.target)
    else:
        commands = tuple(one.command for one in told.differences if one.command is not None)
    if not commands:
        return
    _title(console, "Commands" if told.differences is None else "Commands for what is missing")
    for command in commands:
        console.print(Text(command, "cyan"), soft_wrap=True)
    if told.target.form == "heroku" and told.prefix:
        console.print(Text(f"Names are bare: the platform puts {told.prefix} on.", "dim"))


def _show_differences(differences: tuple[Difference, ...], console: Console) -> None:
    _title(console, "The cluster beside the plan")
    if not differences:
        console.print(Text("It is as planned.", "green"))
        return
    table = _table("", "name", "what is there")
    for one in differences:
        table.add_row(Text(one.what, _MARKS[one.what]), one.name, one.detail)
    console.print(table)


def _budgets(told: Told) -> Table:
    table = _table("plan", "used", ">replicas", ">room for")
    for names, budget in _alike(told):
        limit = budget.plan.replicas_max
        star = "*" if "replicas_max" in budget.plan.unverified else ""
        chosen = told.target.plan.name in names
        table.add_row(
            Text(_span(names), "bold" if chosen else ""),
            _bar(budget.replicas / limit),
            f"{budget.replicas:,}",
            f"{limit:,}{star}",
        )
    return table


def _alike(told: Told) -> Iterator[tuple[list[str], heroku.Budget]]:
    """Yield plans with the same limits once, with the names of all of them."""

    def limits(budget: heroku.Budget) -> tuple[int, int, bool]:
        return budget.plan.replicas_max, budget.replicas, budget.plan.shared

    for _, group in groupby(told.budgets, limits):
        budgets = list(group)
        yield [budget.plan.name for budget in budgets], budgets[0]


def _span(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1].rpartition('-')[2]}"


def _bar(share: float) -> Text:
    filled = min(BAR_WIDTH, max(1, round(share * BAR_WIDTH)))
    style = "red" if share > 1 else "yellow" if share > 0.8 else "green"
    return Text.assemble(
        ("━" * filled, style), ("─" * (BAR_WIDTH - filled), "dim"), f" {share:>4.0%}"
    )


def _footnotes(told: Told, console: Console) -> None:
    for problem in told.budget.problems:
        console.print(Text(problem, "red"))
    console.print(
        Text("* what is published is a number of partitions; taken to count each replica", "dim")
    )


def _show_traffic(told: Told, console: Console) -> None:
    traffic = told.traffic
    if traffic is None:
        if told.silence:
            console.print()
            console.print(Text(f"Bytes are not known: {told.silence}", "yellow"))
        return
    load = traffic.load
    _title(
        console,
        f"Bytes per line of {load.words_per_line:.3g} words, at {load.words_per_s:,.0f} words/s",
    )
    table = _table("topic", ">records", ">produced", ">consumed")
    for one in traffic.topics:
        table.add_row(
            one.topic.name,
            f"{one.records:,.1f}",
            f"{one.produced_bytes:,.0f} B",
            f"{one.consumed_bytes:,.0f} B",
        )
    table.add_section()
    table.add_row("all", "", f"{traffic.produced_bytes:,.0f} B", f"{traffic.consumed_bytes:,.0f} B")
    table.add_row(
        "in a second, with requests",
        "",
        f"{traffic.produced_bytes_per_s / 1024:,.1f} kB",
        f"{traffic.consumed_bytes_per_s / 1024:,.1f} kB",
    )
    console.print(table)
    if told.throttle is not None:
        _show_throttle(told, console)


def _show_throttle(told: Told, console: Console) -> None:
    throttle = told.throttle
    assert throttle is not None, "nothing to show"
    plan = throttle.plan
    limit = plan.produce_bytes_per_s if throttle.binds == "produce" else plan.consume_bytes_per_s
    console.print(
        Text.assemble(
            f"{plan.name} throttles from about ",
            (f"{_rounded(throttle.words_per_s):,} words/s", "bold"),
            f" on: what is {throttle.binds}d reaches {(limit or 0) // 1024:,} kB/s first.",
        )
    )


def _rounded(rate: float) -> int:
    """Two figures are all that an estimate knows.

    >>> _rounded(961.3), _rounded(43)
    (960, 43)
    """
    digits = len(str(int(rate))) - 2
    return int(round(rate, -max(0, digits)))
