""".env.example lists every variable with its default and a comment, and nothing else."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

import aggregator.settings
import ingest.settings
import sink.settings
from streamcore.settings import ServiceSettings, variables

EXAMPLE = Path(__file__).parents[3] / ".env.example"
SERVICES: list[type[ServiceSettings]] = [
    ingest.settings.Settings,
    aggregator.settings.Settings,
    sink.settings.Settings,
]


def as_text(default: object) -> str:
    if default is None:
        return ""
    if isinstance(default, SecretStr):
        return default.get_secret_value()
    return json.dumps(dict(default)) if isinstance(default, Mapping) else str(default)


def listed() -> dict[str, str]:
    """Return names and values of the lines ``#NAME=value``; each has a comment above it."""
    lines = EXAMPLE.read_text().splitlines()
    found: dict[str, str] = {}
    for above, line in zip(["", *lines], lines, strict=False):
        if match := re.fullmatch(r"#?([A-Z][A-Z_0-9]*)=(.*)", line):
            assert match[1] not in found, f"{match[1]} stands there twice"
            assert above.startswith("# "), f"{match[1]} has no comment"
            assert line.startswith("#"), f"{match[1]} is set; a default needs no setting"
            found[match[1]] = match[2]
    return found


def test_every_variable_is_listed_with_its_default() -> None:
    defaults: dict[str, str] = {}
    for settings in SERVICES:
        for variable in variables(settings):
            # Last comes the name that all services share, if there is one.
            name, text = variable.names[-1], as_text(variable.default)
            assert defaults.setdefault(name, text) == text, f"{name} has two defaults"
    assert listed() == defaults


def test_settings_that_services_share_are_read_under_one_name() -> None:
    names = [{v.names[-1] for v in variables(settings) if not v.engine} for settings in SERVICES]
    ingest_names, aggregator_names, sink_names = names
    assert ingest_names & aggregator_names == {"WORDS_TOPIC"}
    assert aggregator_names & sink_names == {"COUNTS_TOPIC", "WINDOW_SIZE_MS"}
