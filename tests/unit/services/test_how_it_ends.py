"""How a program ends that must: said in lines that hold no secret and that no collector splits."""

import json
import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from sink.settings import Settings
from streamcore.adapters.kafka_refusals import Refusals
from streamcore.adapters.log_output import LINE_BYTES_MAX
from streamcore.errors import ConfigError, ProcessingError, RetriableError, StreamsError
from streamcore.model import TopicPartition
from streamcore.service import tell_errors
from streamcore.settings import by_variable

SECRET = "postgres://u:geheim@h/d"
COMMAND = "heroku kafka:topics:create words --partitions 4"
LONG = "word ü\n" * 5_000

# To be run as a worker is: the log is set up when it ends.
PROGRAM = """
import sys
from streamcore.adapters.log_output import configure_logging
from streamcore.errors import ConfigError, StreamsError
from streamcore.service import tell_errors
configure_logging(sys.argv[1])
with tell_errors("mill"):
    error = eval(sys.argv[2])
    error.add_note("a command --for you")
    raise error
"""


def record_error(reason: str) -> ProcessingError:
    return ProcessingError(TopicPartition("words", 3), 17, reason)


def told(error: StreamsError, capsys: pytest.CaptureFixture[str]) -> tuple[object, list[str]]:
    """Return the exit code and the lines on stderr."""
    with pytest.raises(SystemExit) as caught, tell_errors("mill"):
        raise error
    said = capsys.readouterr().err
    assert said.endswith("\n")
    return caught.value.code, said.splitlines()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (record_error(f"no row\nfor {SECRET}\r\n\x1b[31mat all"), 1),
        (RetriableError(f"no row\n\n  for {SECRET}\x00at all"), 1),
        (ConfigError([f"no row for\n{SECRET} at\u2028all"]), 2),
    ],
)
def test_an_end_is_one_line_without_a_secret(
    error: StreamsError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found, (line,) = told(error, capsys)
    assert found == code
    assert line.startswith("mill: ")
    assert "no row for postgres://***@h/d at all" in line
    assert line.isprintable()


@pytest.mark.parametrize("kind", [record_error, RetriableError, lambda text: ConfigError([text])])
def test_an_end_is_never_longer_than_a_line_may_be(
    kind: type[StreamsError], capsys: pytest.CaptureFixture[str]
) -> None:
    _, (line,) = told(kind(f"first {LONG} last"), capsys)
    assert LINE_BYTES_MAX // 2 < len(line.encode()) < LINE_BYTES_MAX
    assert "first" in line
    assert "last" in line


def test_commands_stand_under_it_each_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (StreamsError("no"), ConfigError(["no"])):
        for note in (COMMAND, f"psql {SECRET} -c '\\dp  words'\n"):
            error.add_note(note)
        _, lines = told(error, capsys)
        assert lines == ["mill: no", COMMAND, "psql postgres://***@h/d -c '\\dp  words'"]


def ended(log_format: str, error: str) -> tuple[int, list[bytes]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, log_format, error],
        capture_output=True, check=False, timeout=30,
    )  # fmt: skip
    return done.returncode, done.stderr.splitlines()


def test_where_machines_read_the_log_an_end_is_an_event() -> None:
    problems = [f"first one\n{SECRET}", LONG]
    code, lines = ended("logfmt", f"ConfigError({problems!r})")
    assert code == 2
    first, second, command = lines
    start = b'level=error event="ended by an error" '
    assert first == start + b'program=mill reason="first one\\npostgres://***@h/d" exit_code=2'
    assert second.startswith(start + b"truncated=true program=mill ")
    assert LINE_BYTES_MAX // 2 < len(second) <= LINE_BYTES_MAX
    assert command == b"a command --for you"

    code, (line, command) = ended("json", f"StreamsError({SECRET!r})")
    event = json.loads(line)
    assert (code, command) == (1, b"a command --for you")
    assert (event["event"], event["reason"]) == ("ended by an error", "postgres://***@h/d")


def test_where_somebody_looks_an_end_is_a_line() -> None:
    assert ended("console", f"StreamsError({SECRET!r})") == (
        1, [b"mill: postgres://***@h/d", b"a command --for you"],
    )  # fmt: skip


# --- whole services, where no broker is needed ----------------------------------------------------


def run(*words: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", *words], env={"PATH": os.environ["PATH"], **variables}, cwd=folder,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("own", ["", "AGGREGATOR_METRICS_PORT"])
def test_a_port_that_is_taken_is_a_wrong_setting(own: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        name, port = own or "STREAMCORE_METRICS_PORT", str(taken.getsockname()[1])
        done = run(
            "aggregator", folder=tmp_path, KAFKA_URL="kafka://127.0.0.1:1",
            STREAMCORE_NUM_STREAM_THREADS="2", STREAMCORE_LOG_FORMAT="console", **{name: port},
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"aggregator: {name} is {port}, and 127.0.0.1 does not give it: ")
    assert "it is in use" in last


def broken(kind: str) -> str:
    return f"-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----"


AMBER = "HEROKU_KAFKA_AMBER"
ATTACHED = {
    f"{AMBER}_URL": "kafka+ssl://127.0.0.1:1",
    f"{AMBER}_TRUSTED_CERT": broken("CERTIFICATE"),
    f"{AMBER}_CLIENT_CERT": broken("CERTIFICATE"),
    f"{AMBER}_CLIENT_CERT_KEY": broken("PRIVATE KEY"),
}


@pytest.mark.parametrize("words", [("ingest",), ("ingest", "feed", "--sample"), ("sink",)])
def test_a_certificate_that_cannot_be_read_is_named_as_its_attachment_names_it(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    done = run(
        *words, folder=tmp_path, DATABASE_URL="postgres://127.0.0.1:1/x",
        STREAMCORE_LOG_FORMAT="console", **ATTACHED,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert "cannot be set up: " in last
    assert f"({AMBER}_" in last
    assert "kafka_" not in last


def test_the_doctor_names_it_so_as_well(tmp_path: Path) -> None:
    done = run("streamcore", "doctor", "ingest", folder=tmp_path, **ATTACHED)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"({AMBER}_" in done.stdout
    assert "(kafka_" not in done.stdout


def test_a_refusal_that_lasts_names_the_variables_of_the_attachment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in list(os.environ):
        if name.startswith(("STREAMCORE_", "SINK_", "KAFKA_")):
            monkeypatch.delenv(name)
    refusals = Refusals(iter(range(1_000, 9_000, 5)).__next__)
    for _ in range(4):
        refusals.hear(KafkaError(KafkaError._AUTHENTICATION, "no"))
    for variables, shown in (
        ({}, "KAFKA_TRUSTED_CERT, KAFKA_CLIENT_CERT, KAFKA_CLIENT_CERT_KEY"),
        (
            {**ATTACHED, "SINK_KAFKA_CLIENT_CERT": "x"},
            f"{AMBER}_TRUSTED_CERT, SINK_KAFKA_CLIENT_CERT, {AMBER}_CLIENT_CERT_KEY",
        ),
        # Which of two is meant cannot be told.
        (
            {"GREEN_URL": "kafka://green:1"},
            "kafka_trusted_cert, kafka_client_cert, kafka_client_cert_key",
        ),
    ):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit), tell_errors("sink", partial(by_variable, Settings)):
            refusals.raise_if_lasting()
        assert f"compare the certificates ({shown})" in capsys.readouterr().err


@pytest.mark.parametrize("dyno", [False, True])
def test_the_doctor_prints_what_gives_us_a_database(dyno: bool, tmp_path: Path) -> None:
    place = {"DYNO": "run.1", "HEROKU_APP_NAME": "sushi"} if dyno else {}
    done = run(
        "streamcore", "doctor", "sink", "--json", "--timeout-s", "1", folder=tmp_path,
        KAFKA_URL="kafka://127.0.0.1:1", **place,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    (command,) = [
        finding["command"]
        for finding in json.loads(done.stdout)["findings"]
        if finding["detail"].startswith("DATABASE_URL is not set")
    ]
    assert command == (
        "heroku addons:create heroku-postgresql:essential-0 --as DATABASE --app sushi"
        if dyno
        else "export DATABASE_URL=postgresql://user:password@host:5432/name"
    )
