"""``streamcore plan`` as it is called, on the services that are installed; no broker."""

import inspect
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner, Result

from streamcore import application
from streamcore.cli import app
from streamcore.cluster import Answer, BrokerFacts, ClusterFacts, TopicFacts
from streamcore.plan import command
from streamcore.plan.topics import make_plan
from streamcore.runtime import outer_topics

ROOT = Path(__file__).parents[3]

# At this rate the search for where basic-0 throttles ends soon.
QUICK = ("--rate", "900", "--distinct-words", "500")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those of a test."""
    known = ("STREAMCORE_", "INGEST_", "AGGREGATOR_", "SINK_", "KAFKA_", "DATABASE_", "HEROKU_")
    plain = {"EMIT", "GRACE_MS", "WINDOW_SIZE_MS", "LINES_TOPIC", "WORDS_TOPIC", "COUNTS_TOPIC"}
    for name in list(os.environ):
        if name.startswith(known) or name in plain | {"DYNO"}:
            monkeypatch.delenv(name)
    # The rehearsal is ten commits long, or one window: here a short one.
    monkeypatch.setenv("WINDOW_SIZE_MS", "1000")
    monkeypatch.setenv("STREAMCORE_COMMIT_INTERVAL_MS", "100")


def plan(*words: str, code: int = 0, columns: int = 80) -> Result:
    done = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["plan", *words])
    assert done.exit_code == code, done.output
    return done


def document(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plan("--json", *QUICK, *words).stdout)
    return found


def test_all_services_are_planned_in_one_call() -> None:
    found = document("--form", "heroku", "--app", "sushi")
    assert found["services"] == ["ingest", "aggregator", "sink"]
    names = [topic["name"] for topic in found["topics"]]
    assert names == [
        "textlines",
        "words",
        "windowed-counts",
        "aggregator-app-windowed-counts-repartition",
        "aggregator-app-windowed-counts-changelog",
    ]
    assert [group["name"] for group in found["groups"]] == [
        "ingest-app",
        "aggregator-app",
        "sink-app",
    ]
    assert found["commands"] == [
        *(topic["command"] for topic in found["topics"]),
        *(group["command"] for group in found["groups"]),
    ]
    by_plan = {budget["plan"]: budget for budget in found["budgets"]}
    assert (by_plan["basic-0"]["partitions"], by_plan["basic-0"]["replicas"]) == (20, 60)
    assert found["traffic"]["produced_bytes_per_line"] > 0
    assert found["throttle"]["plan"] == "basic-0"
    assert found["differences"] is None


def test_the_environment_decides_names_and_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PREFIX", "mill-1.")
    monkeypatch.setenv("AGGREGATOR_APPLICATION_ID", "counters")
    monkeypatch.setenv("WORDS_TOPIC", "tokens")
    found = document()
    assert (found["form"], found["prefix"]) == ("heroku", "mill-1.")
    wires = {topic["wire"] for topic in found["topics"]}
    assert {"mill-1.tokens", "mill-1.counters-windowed-counts-changelog"} <= wires
    assert not any("mill-1." in command for command in found["commands"])


def test_the_script_is_all_that_is_printed() -> None:
    out = plan("--form", "heroku", "--script", "--app", "sushi", "--plan", "basic-0").stdout
    assert out.startswith("#!/bin/sh\n")
    assert out.count("heroku kafka:topics:create ") == 5
    assert out.endswith('exit "$failed"\n')


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("form", ["heroku", "kafka"])
def test_tables_fit_and_commands_stay_whole(columns: int, form: str) -> None:
    out = plan("--form", form, *QUICK, columns=columns).stdout.splitlines()
    commands = [line for line in out if line.startswith(("heroku ", "kafka-topics.sh "))]
    assert len(commands) == (8 if form == "heroku" else 5)
    end = "--compaction" if form == "heroku" else "min.cleanable.dirty.ratio=0.1"
    assert commands[4].endswith(end)
    others = [line for line in out if line not in commands]
    assert max(map(cell_len, others)) <= columns
    assert not any("…" in line for line in out)
    assert any("basic-0 throttles from about" in line for line in out)
    # Where a long name does not fit, it is broken behind a hyphen.
    whole, half = "aggregator-app-windowed-counts-changelog  ", "aggregator-app-windowed-  "
    row = next(line.strip() for line in others if "state of" in line)
    assert row.startswith(half if columns == 80 else whole)


def test_a_service_alone_says_why_its_bytes_are_not_known() -> None:
    out = " ".join(plan("sink").stdout.split())
    assert "Bytes are not known: lines of text are no input of sink" in out


def test_a_plan_that_is_too_small_is_told() -> None:
    out = plan("--form", "heroku", "--partitions", "20", *QUICK).stdout
    assert "100 partitions are 300 replicas; basic-0 has room for 240" in out


@pytest.mark.parametrize("words", [("--script",), ("--json",), ()])
def test_partitions_with_which_no_worker_starts_are_told_with_the_reason(
    words: tuple[str, ...],
) -> None:
    refused = plan(
        "--form", "heroku", "--plan", "standard-0", "--partitions", "500", *words, code=1
    )
    assert refused.stdout == ""
    assert "aggregator could not start: " in refused.stderr
    assert "500 upstream tasks" in refused.stderr
    assert "lines of text" not in refused.stderr


def test_a_script_for_which_there_is_no_room_is_not_printed() -> None:
    words = ("--script", "--form", "heroku", "--partitions", "99")
    refused = plan(*words, "--plan", "basic-0", code=1)
    assert refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert "495 partitions are 1485 replicas; basic-0 has room for 240" in line
    assert "--plan" not in line
    assert "name the plan with --plan" in plan(*words, code=1).stderr
    assert "--partitions 99" in plan(*words, "--plan", "standard-0").stdout


def test_the_number_of_partitions_is_written_once() -> None:
    created = re.findall(r"--partitions (\d+)", plan("--script").stdout)
    assert set(map(int, created)) == {outer_topics.PARTITIONS}
    assert inspect.signature(make_plan).parameters["partitions"].default == outer_topics.PARTITIONS
    assert not re.search(r"partitions=\d", (ROOT / "bin" / "setup").read_text(encoding="utf-8"))


def test_services_of_one_group_are_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINK_APPLICATION_ID", "aggregator-app")
    refused = plan("--script", code=2)
    assert refused.stdout == ""
    assert "aggregator and sink have the same consumer group aggregator-app" in refused.stderr


def test_of_two_attachments_one_must_be_named_without_a_broker_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AMBER", "PINK"):
        monkeypatch.setenv(f"HEROKU_KAFKA_{name}_URL", "kafka://one:9092")
        monkeypatch.setenv(f"HEROKU_KAFKA_{name}_PREFIX", f"{name.lower()}-1.")
    refused = plan("--script", code=2)
    assert "set STREAMCORE_KAFKA_ATTACHMENT to one of" in refused.stderr
    monkeypatch.setenv("STREAMCORE_KAFKA_ATTACHMENT", "HEROKU_KAFKA_PINK")
    created = re.findall(r"heroku kafka:\S+:create .*", plan("--script").stdout)
    assert len(created) == 8
    assert all(" HEROKU_KAFKA_PINK_URL " in line for line in created)


def test_a_script_of_what_is_missing_is_not_made_where_nobody_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_URL", "kafka://one:9092")
    monkeypatch.setenv("KAFKA_PREFIX", "zz.")

    found = ClusterFacts((BrokerFacts("one:9092", "answers"),))
    planned = json.loads(plan("--json", *QUICK).stdout)
    topics = {one["wire"]: one["partitions"] for one in planned["topics"]}
    groups = {one["wire"]: Answer(True) for one in planned["groups"]}

    monkeypatch.setattr(command, "look_at_cluster", lambda *_, **__: found)
    found = replace(found, hidden=frozenset(topics), groups=groups)
    refused = plan("--diff", "--script", code=1)
    assert refused.stdout == ""
    assert "refuses to speak of textlines, words, " in refused.stderr
    # Nor is that a cluster as planned, though nothing is known to be missing.
    told = json.loads(plan("--diff", "--json", *QUICK, code=1).stdout)["differences"]
    assert {(one["what"], one["undecided"]) for one in told} == {("unknown", True)}

    there = {name: TopicFacts(name, count, 3) for name, count in topics.items()}
    found = replace(found, topics=there, hidden=frozenset())
    assert "heroku " not in plan("--diff", "--script").stdout
    told = json.loads(plan("--diff", "--json", *QUICK).stdout)["differences"]
    assert {(one["what"], one["undecided"]) for one in told} == {("unknown", False)}, "settings"

    found = replace(found, groups={**groups, "zz.sink-app": Answer(None, "not now")})
    refused = plan("--diff", "--script", code=1)
    assert refused.stdout == ""
    assert "nobody says whether the group is granted: not now" in refused.stderr
    plan("--diff", "--json", *QUICK, code=1)


def test_a_certificate_that_cannot_be_read_is_told_by_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEROKU_KAFKA_AMBER_URL", "kafka+ssl://127.0.0.1:1")
    for what, kind in (("TRUSTED_CERT", "CERTIFICATE"), ("CLIENT_CERT", "CERTIFICATE"),
                       ("CLIENT_CERT_KEY", "PRIVATE KEY")):  # fmt: skip
        pem = f"-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----"
        monkeypatch.setenv(f"HEROKU_KAFKA_AMBER_{what}", pem)
    refused = plan("--diff", code=2)
    assert "(HEROKU_KAFKA_AMBER_TRUSTED_CERT)" in refused.stderr
    assert "kafka_trusted_cert" not in refused.stderr


def test_without_any_application_there_is_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "entry_points", lambda **_: ())
    refused = plan("--script", code=2)
    assert refused.stderr == "streamcore plan: no application is installed\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("nonsense",), "nonsense is no installed application"),
        (("--plan", "basic-9"), "basic-9 is no plan"),
        (("--script", "--json"), "--script and --json exclude each other"),
        (("--diff",), "KAFKA_URL is not set"),
    ],
)
def test_what_cannot_be_is_one_line_on_stderr(words: tuple[str, ...], reason: str) -> None:
    refused = plan(*words, code=2)
    assert refused.stdout == ""
    lines = refused.stderr.splitlines()
    assert all(line.startswith("streamcore plan: ") for line in lines)
    assert reason in lines[0]


def test_services_on_two_clusters_are_not_planned_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SINK_KAFKA_URL", "kafka://elsewhere:9092")
    refused = plan(code=2)
    assert "sink has another cluster or prefix than ingest" in refused.stderr


def test_a_cluster_that_is_away_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_URL", "kafka://127.0.0.1:1")
    refused = plan("--diff", code=1)
    assert refused.stdout == ""
    assert refused.stderr.startswith("streamcore plan: no broker answers (127.0.0.1:1")


def test_bytes_of_lines_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("the same words\n\nagain and again\n", encoding="utf-8")
    traffic = document("--text", str(file))["traffic"]
    assert (traffic["words_per_line"], traffic["distinct_words"]) == (2, None)
    by_name = {topic["name"]: topic["records_per_line"] for topic in traffic["topics"]}
    assert by_name["words"] == pytest.approx(2, abs=0.1)
    # Five different words: a window of a second has each once a commit at most.
    assert by_name["windowed-counts"] < 1


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), (b"\n\n", "no word"), (b"\xff", "utf-8")]
)
def test_a_text_that_cannot_be_used_is_said_so(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "text"
    if content is not None:
        file.write_bytes(content)
    refused = plan("--text", str(file), code=2)
    assert reason in refused.stderr
