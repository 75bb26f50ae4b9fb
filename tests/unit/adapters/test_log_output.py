"""The log: one event a line, short enough for any collector, without secrets, by whatever way."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamcore.adapters.log_output import LINE_BYTES_MAX, logfmt, one_line
from streamcore.adapters.redaction import without_secrets

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----"

PROGRAM = """
import logging, sys, threading, warnings
import structlog
from streamcore.adapters.log_output import configure_logging
configure_logging(sys.argv[1])
"""


def run(log_format: str, program: str) -> tuple[int, list[str]]:
    """Run a program with its log set up; return exit code and the lines on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + program, log_format],
        capture_output=True,
        check=False,
        timeout=30,
    )
    return done.returncode, done.stderr.decode().splitlines()


def line_of(event: dict[str, Any], encoding: str = "utf-8") -> str:
    return str(one_line(logfmt, encoding)(None, "", event))


def fields(line: str) -> dict[str, str]:
    """Read a line back, as the readers of such lines do."""
    found = {}
    for match in re.finditer(r'([^ =]+)=(?:"((?:\\.|[^"\\])*)"|([^ ]*))(?: |$)', line):
        key, quoted, bare = match.groups()
        found[key] = bare if quoted is None else quoted.replace('\\"', '"')
    return found


def test_an_event_is_a_line_of_fields_with_level_and_event_first() -> None:
    line = line_of({"task": "0_1", "rows": 7, "event": "task runs", "level": "info", "warm": True})
    assert line == 'level=info event="task runs" task=0_1 rows=7 warm=true'


def test_line_ends_quotes_colours_and_odd_keys_do_no_harm() -> None:
    line = line_of({"event": 'a "b"\r\nc\x1b[31m d\x00\u2028e', "a key=": "x=y", "none": None})
    assert line.isprintable()
    assert fields(line) == {"event": r'a "b"\nc d \ne', "a_key_": "x=y", "none": ""}


def test_a_long_value_is_cut_in_its_middle() -> None:
    trace = "Traceback:\n" + "  at some line\n" * 5_000 + "ValueError: the end"
    line = line_of({"event": "e", "exception": trace, "task": "0_1"})
    assert len(line) > LINE_BYTES_MAX // 2
    found = fields(line)
    assert found["truncated"] == "true"
    assert found["task"] == "0_1"
    assert found["exception"].startswith(r"Traceback:\n")
    assert found["exception"].endswith("ValueError: the end")


texts = st.text(max_size=12_000) | st.text(max_size=30).map(lambda text: text * 1_000)


@settings(deadline=None, max_examples=40, database=None)
@given(
    st.dictionaries(st.text(max_size=20), texts | st.integers() | st.none(), max_size=8),
    st.sampled_from(["utf-8", "ascii", "latin-1"]),
)
def test_no_line_is_too_long_whatever_it_holds(event: dict[str, Any], encoding: str) -> None:
    for render in (logfmt, lambda event: json.dumps(dict(event))):
        line = str(one_line(render, encoding)(None, "", {"event": "e", "level": "info", **event}))
        assert len(line.encode(encoding, errors="backslashreplace")) <= LINE_BYTES_MAX
        assert "\n" not in line
        assert line == line.encode(encoding, errors="strict").decode(encoding)


def test_thousands_of_fields_are_cut_to_the_first_ones() -> None:
    event = {f"field{number}": "x" * 20 for number in range(5_000)}
    line = line_of({**event, "event": "e", "level": "info"})
    assert len(line) <= LINE_BYTES_MAX
    found = fields(line)
    assert (found["event"], found["truncated"], "field0" in found) == ("e", "true", True)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"before {KEY} after", "before [PEM] after"),
        (KEY.replace("\n", "\\n"), "[PEM]"),
        (KEY[:50], "[PEM]"),
        ("postgres://me:pass@host:5432/db", "postgres://***@host:5432/db"),
        ("kafka+ssl://u:p@h:9096,kafka+ssl://u:p@i:9096", "kafka+ssl://***@h:9096,kafka+ssl://***@i:9096"),
        ("host=h password=geheim user=me", "host=h password=*** user=me"),
        ("kafka://h:9092 and a@b.example", "kafka://h:9092 and a@b.example"),
        ("postgres://u:p@ss/w@h/d", "postgres://***@h/d"),
        ("{'sasl.password': 'x', 'other': 'u'}", "{'sasl.password': ***, 'other': 'u'}"),
        ("PGPASSWORD=x psql", "PGPASSWORD=*** psql"),
        ("password: x", "password: ***"),
        ('connect(password="x y", host="h")', 'connect(password=***, host="h")'),
        ("sasl.oauthbearer.client.secret=x", "sasl.oauthbearer.client.secret=***"),
        ("password='cut off he", "password=***"),
        ("password authentication failed for user u", "password authentication failed for user u"),
    ],
)  # fmt: skip
def test_secrets_are_left_out(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def quoted_for_libpq(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace("'", r"\'")
    return f"'{escaped}'"


NO_SPACE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=20)
PASSWORDS = st.text(max_size=20) | st.text(st.sampled_from("ab@/:\\'\" ,=&{}\n"), max_size=12)


@settings(database=None)
@given(
    NO_SPACE | st.text(st.sampled_from("ab@/:\\'\",=&"), min_size=1, max_size=12),
    st.sampled_from(["postgres", "kafka+ssl"]),
)
def test_no_password_of_an_address_is_left(password: str, scheme: str) -> None:
    """Not percent-encoded either, as an address is before somebody is told that it is wrong."""
    assume(f",{scheme}://" not in password)
    url = f"{scheme}://u:{password}@h/d"
    assert without_secrets(f"at '{url}' it") == f"at '{scheme}://***@h/d' it"
    listed = f"{url},{url}"
    assert without_secrets(listed) == f"{scheme}://***@h/d,{scheme}://***@h/d"


@settings(database=None)
@given(PASSWORDS)
def test_no_password_of_a_setting_is_left(password: str) -> None:
    given = {"sasl.password": password, "n": 1}
    for text, shown in (
        (f"{given} it", "{'sasl.password': ***, 'n': 1} it"),
        (json.dumps(given), '{"sasl.password": ***, "n": 1}'),
        (json.dumps(json.dumps(given)), r'"{\"sasl.password\": ***, \"n\": 1}"'),
        (f"password={quoted_for_libpq(password)} host=h", "password=*** host=h"),
    ):
        assert without_secrets(text) == shown


@settings(database=None)
@given(NO_SPACE)
def test_no_password_without_quotes_is_left(password: str) -> None:
    assume(password[0] not in "\\\"'")
    for text in ("PGPASSWORD=#", "password: #", "ssl.key.password = #"):
        shown = text.replace("#", "***")
        assert without_secrets(f"{text.replace('#', password)} it") == f"{shown} it"


@settings(database=None)
@given(PASSWORDS.filter(lambda password: len(password.strip()) > 3))
def test_no_password_in_a_value_gets_into_a_line(password: str) -> None:
    values = {"PGPASSWORD": password, "config": {"x": [{"sasl.password": password}]}}
    for render in (logfmt, lambda event: json.dumps(dict(event))):
        line = str(one_line(render)(None, "", {"event": "e", **values}))
        assert line == str(one_line(render)(None, "", {"event": "e", **_SHOWN}))


_SHOWN = {"PGPASSWORD": "***", "config": {"x": [{"sasl.password": "***"}]}}


def test_a_list_that_holds_itself_is_a_line_as_well() -> None:
    endless: list[object] = ["password=x"]
    endless.append(endless)
    assert "=x" not in line_of({"event": "e", "endless": endless})


def test_half_a_secret_is_not_shown_either() -> None:
    body = "".join(f"{number:07d}" for number in range(5_000))
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----"
    line = line_of({"event": "e", "found": [key], "more": "x" * 20_000})
    assert "truncated=true" in line
    assert "0004999" not in line
    assert "0000001" not in line


def test_what_bypasses_the_log_is_one_line_each() -> None:
    code, lines = run(
        "logfmt",
        """
logging.getLogger("library").warning("a\\nb %s", "c")
logging.getLogger("library").info("nobody asked")
warnings.warn("old\\nthing")
thread = threading.Thread(target=lambda: 1 / 0, name="t")
thread.start(); thread.join()
class Bad:
    def __del__(self): raise KeyError("gone")
Bad()
structlog.get_logger().info("fine", n=1)
try:
    raise KeyError("first")
except KeyError:
    raise ValueError("postgres://me:geheim@h/db")
""",
    )
    assert code == 1
    starts = [" ".join(line.split(" ")[:2]) for line in lines]
    assert starts == [
        "level=warning event=\"a\\nb", "level=warning event=\"UserWarning:",
        "level=critical event=\"uncaught", "level=error event=\"an", "level=info event=fine",
        "level=critical event=\"uncaught",
    ]  # fmt: skip
    assert "logger=library" in lines[0]
    assert "ZeroDivisionError" in lines[2]
    assert "KeyError" in lines[-1]
    assert "postgres://***@h/db" in lines[-1]
    assert "geheim" not in "".join(lines)


def test_json_is_one_line_each_as_well() -> None:
    code, lines = run("json", "raise ValueError('x' * 20_000)")
    assert code == 1
    (event,) = map(json.loads, lines)
    assert event["event"] == "uncaught exception"
    assert event["truncated"] is True
    assert event["exception"].startswith("Traceback")
    assert "timestamp" in event


def test_where_somebody_looks_tracebacks_stay_as_they_are() -> None:
    code, lines = run("console", "structlog.get_logger().info('a', url='x://u:p@h'); 1 / 0")
    assert code == 1
    assert "x://***@h" in lines[0]
    assert lines[1] == "Traceback (most recent call last):"
