"""Writes docs/generated from the code: settings, metrics, state machines, topologies.

``make docs`` runs it; a test runs it into another folder and compares.
"""

import argparse
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, NoReturn

from pydantic import SecretStr

import aggregator.settings
import aggregator.topology
import ingest.settings
import ingest.topology
import sink.settings
import sink.topology
from streamcore import Topology
from streamcore.runtime import lifecycle as worker_lifecycle
from streamcore.runtime.metrics import DESCRIPTIONS, LABELS
from streamcore.settings import ServiceSettings, Variable, variables
from streamcore.task import lifecycle as task_lifecycle

ROOT: Final = Path(__file__).resolve().parents[1]
SERVICES: Final[Mapping[str, type[ServiceSettings]]] = {
    "ingest": ingest.settings.Settings,
    "aggregator": aggregator.settings.Settings,
    "sink": sink.settings.Settings,
}
NOTE: Final = "Written by `make docs`; change the code, not this page."
SETTINGS: Final = """\
Everything is read from environment variables; [.env.example](../../.env.example) lists the same to
copy. A setting of the engine has the name of its field in `StreamsConfig`. For one service alone
put `INGEST_`, `AGGREGATOR_` or `SINK_` in place of `STREAMCORE_`, or in front of a name that has
neither: that one wins. An empty variable counts as not set. An unknown name with one of these
prefixes is refused at the start.

What no variable sets has its default: the service's own, else the one that suits the place, else
the one in the table. A dyno (`DYNO` is set) gives `instance`, `log_format` `logfmt`,
`metrics_log_interval_ms` 20000, and by its memory (`DYNO_RAM`, or 512 MB) `memory_limit_bytes`,
nine tenths of it, and `cache_max_bytes`, a sixteenth; several worker processes share both.
`heroku local` and honcho give `instance`."""
METRICS: Final = """\
Served at `http://127.0.0.1:<STREAMCORE_METRICS_PORT>/metrics` in Prometheus' format. Counters are
brought up to date at each commit, gauges once a second. A series of a task, a store or a partition
is told by the worker that has it, and gone at once when the group takes it away. How many series
there are depends on neither keys nor time. What to do about them is in
[OPERATIONS.md](../OPERATIONS.md)."""
TASK_STATES: Final = "From the table in `streamcore/task/lifecycle.py`."
WORKER_STATES: Final = """\
From the table in `streamcore/runtime/lifecycle.py`. A listener given to `StreamsApp` hears of each
move."""
TOPOLOGIES: Final = """\
A box is a sub-topology: it runs as one task per partition. `python -m aggregator describe` prints
the same as text."""
UNITS: Final = {"_ms": "ms", "_bytes": "bytes", "_rows_max": "records", "_port": "port"}


class Page(NamedTuple):
    """One page: its heading, what stands above the rest, and what makes the rest."""

    title: str
    introduction: str
    make: Callable[[], Iterable[str]]


def main() -> None:
    """Write every page, into docs/generated unless another folder is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "generated")
    folder: Path = parser.parse_args().into
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        head = [f"# {page.title}", "", NOTE, "", page.introduction, ""]
        (folder / name).write_text("\n".join([*head, *page.make(), ""]), encoding="utf-8")


# --- state machines and topologies --------------------------------------------------------------


def task_states() -> list[str]:
    """Return the states of a task."""
    return _mermaid(task_lifecycle.as_mermaid())


def worker_states() -> list[str]:
    """Return the states of a worker."""
    return _mermaid(worker_lifecycle.as_mermaid())


def topologies() -> list[str]:
    """Return the topologies of the three services."""
    lines: list[str] = []
    for service, topology in _topologies().items():
        lines += [f"## {service}", "", *_mermaid(topology.mermaid()), ""]
    return lines[:-1]


def _topologies() -> dict[str, Topology]:
    def no_store() -> NoReturn:
        raise AssertionError("a picture runs nothing")

    return {
        "ingest": ingest.topology.build(ingest.settings.Settings.model_construct()),
        "aggregator": aggregator.topology.build(aggregator.settings.Settings.model_construct()),
        "sink": sink.topology.build(sink.settings.Settings.model_construct(), no_store),
    }


def _mermaid(diagram: str) -> list[str]:
    return ["```mermaid", *diagram.splitlines(), "```"]


# --- metrics ------------------------------------------------------------------------------------


def metrics() -> Iterator[str]:
    """Return the table of the metrics."""
    rows = [
        (
            f"`{name}`",
            "counter" if name.endswith("_total") else "gauge",
            ", ".join(LABELS.get(name, ())),
            meaning,
        )
        for name, meaning in DESCRIPTIONS.items()
    ]
    return _table(("metric", "kind", "labels", "meaning"), rows)


# --- settings -----------------------------------------------------------------------------------


def config() -> list[str]:
    """Return the tables of all settings, the engine's first."""
    meanings = _meanings((ROOT / ".env.example").read_text(encoding="utf-8"))
    engine = [v for v in variables(SERVICES["ingest"]) if v.engine and v.field != "application_id"]
    lines = ["## The engine", "", *_settings(engine, meanings, drop="INGEST_")]
    for service, settings in SERVICES.items():
        own = [v for v in variables(settings) if not v.engine or v.field == "application_id"]
        lines += ["", f"## {service}", "", *_settings(own, meanings)]
    return lines


def _settings(
    known: Iterable[Variable], meanings: Mapping[str, str], drop: str = "-"
) -> Iterator[str]:
    rows = [
        (
            f"`{variable.field}`",
            ", ".join(f"`{name}`" for name in variable.names if not name.startswith(drop)),
            _default(variable.default),
            _unit(variable),
            _meaning(variable, meanings),
        )
        for variable in known
    ]
    return _table(("setting", "variable", "default", "unit or values", "meaning"), rows)


def _meaning(variable: Variable, meanings: Mapping[str, str]) -> str:
    if variable.field == "application_id":  # the file says it once, above all three
        return "Name of the consumer group, and part of internal topics and the state folder."
    meaning = meanings[variable.names[-1]]
    if variable.field.endswith("_error"):  # here, too
        return f"What happens to a record if: {meaning[:1].lower()}{meaning[1:]}"
    return meaning


def _meanings(example: str) -> dict[str, str]:
    """Return the comment above each variable of .env.example, where settings are explained once."""
    meanings: dict[str, str] = {}
    comment: list[str] = []
    for line in example.splitlines():
        if match := re.fullmatch(r"#([A-Z][A-Z_0-9]*)=.*", line):
            meanings[match[1]] = " ".join(comment)
            comment = []
        elif line.startswith("# ") and not line.startswith("# ---"):
            comment.append(line[2:])
        else:
            comment = []
    return meanings


def _default(default: Any) -> str:
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if default is None or default == "":
        return "not set"
    return f"`{json.dumps(dict(default)) if isinstance(default, Mapping) else default}`"


def _unit(variable: Variable) -> str:
    unit = next((unit for end, unit in UNITS.items() if variable.field.endswith(end)), None)
    return unit or _kind(variable.kind)


def _kind(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(kind))
    if isinstance(kind, types.UnionType):
        return _kind(next(part for part in typing.get_args(kind) if part is not type(None)))
    if typing.get_origin(kind) is not None:
        return "JSON object"
    return "number" if kind is int else "text"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


PAGES: Final[Mapping[str, Page]] = {
    "config.md": Page("Settings", SETTINGS, config),
    "metrics.md": Page("Metrics", METRICS, metrics),
    "task-states.md": Page("States of a task", TASK_STATES, task_states),
    "topologies.md": Page("Topologies of the three services", TOPOLOGIES, topologies),
    "worker-states.md": Page("States of a worker", WORKER_STATES, worker_states),
}

if __name__ == "__main__":
    main()
