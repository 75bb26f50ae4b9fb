"""The engine's log on standard error, for programs that have not set structlog up themselves.

What comes by other ways (warnings, the logging of libraries, exceptions that nobody caught) takes
the same one. No secret passes, and in the formats that machines read an event is one line that no
collector splits.
"""

import logging
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TextIO

import structlog

from streamcore.adapters.redaction import cleaned, text_of, without_secrets

LINE_BYTES_MAX = 9_500
"""Heroku's collector splits lines at 10,000 bytes."""

_FIRST_KEYS = ("level", "event", "truncated")
_VALUES_MAX = (9_000, 8_000, 7_000, 6_000, 5_000, 4_000, 3_000, 2_000, 1_000, 500, 200, 80, 30)
_KEY_MAX = 80
_CUT = " ... "

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9_.#-]")

Render = Callable[[Mapping[str, Any]], str]


def configure_logging(log_format: str) -> None:
    """Send the engine's log to stderr, unless the program has set structlog up already."""
    if structlog.is_configured():
        return
    for_machines = log_format in ("json", "logfmt")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,  # worker=<n>, see adapters.processes
            structlog.stdlib.add_log_level,
            # Logplex puts a time in front of each line.
            *([] if log_format == "logfmt" else [_TIME]),
            structlog.processors.format_exc_info,
            _renderer(log_format, sys.stderr),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        # A line and its end in one write: worker processes share one log.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(_Bridge())
    if for_machines:
        logging.captureWarnings(capture=True)
        warnings.formatwarning = _warning_in_a_line
        sys.excepthook = _uncaught
        threading.excepthook = _uncaught_in_thread
        sys.unraisablehook = _unraisable


_TIME = structlog.processors.TimeStamper(fmt="iso", utc=True)


def tell_end(
    program: str, problems: Iterable[str], commands: Iterable[str] = (), *, exit_code: int
) -> None:
    """Say why the program ends: an event for each problem where machines read the log, else a line.

    Commands stand under them, each on a line of its own, to be copied. Nothing holds a secret, and
    no line is too long, whatever an error has picked up: a record, an address, a page of text.
    """
    if sys.excepthook is _uncaught:  # the log is ours, and for machines
        log = structlog.get_logger("streamcore.app")
        for problem in problems:
            log.error("ended by an error", program=program, reason=problem, exit_code=exit_code)
    else:
        _write_lines(f"{program}: {problem}" for problem in problems)
    _write_lines(commands)


def _write_lines(texts: Iterable[str]) -> None:
    sys.stderr.write("".join(f"{as_line(text, sys.stderr.encoding)}\n" for text in texts))


def as_line(text: str, encoding: str | None = "utf-8") -> str:
    """Return the text as one line without secrets of at most ``LINE_BYTES_MAX`` bytes."""
    lines = (line.strip() for line in _printable(without_secrets(text)).splitlines())
    line = whole = " ".join(filter(None, lines))
    size = _size_in(encoding)
    most = LINE_BYTES_MAX
    while size(line) > LINE_BYTES_MAX:
        line = _cut(whole, most)
        most = most * 3 // 4
    return line


def _renderer(log_format: str, stream: TextIO) -> structlog.typing.Processor:
    if log_format == "logfmt":
        return one_line(logfmt, stream.encoding)
    if log_format == "json":
        to_json = structlog.processors.JSONRenderer()
        return one_line(lambda event: str(to_json(None, "", dict(event))), stream.encoding)
    console = structlog.dev.ConsoleRenderer(colors=log_format == "auto" and stream.isatty())
    return lambda logger, name, event: console(logger, name, cleaned(event))


def logfmt(event: Mapping[str, Any]) -> str:
    """Return the event as ``level=info event="task runs" task=0_1``."""
    clean = {_NOT_IN_KEYS.sub("_", key) or "_": _plain(value) for key, value in event.items()}
    return str(_logfmt(None, "", clean))


_logfmt = structlog.processors.LogfmtRenderer(
    key_order=_FIRST_KEYS, drop_missing=True, bool_as_flag=False
)


def _plain(value: object) -> object:
    """Return text without colours and control characters but line ends, which are escaped later."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return _printable(text_of(value))


def _printable(text: str) -> str:
    return _CONTROL.sub(" ", "\n".join(_ANSI.sub("", text).splitlines()))


def one_line(render: Render, encoding: str | None = "utf-8") -> structlog.typing.Processor:
    """Return a renderer whose lines hold no secret and at most ``LINE_BYTES_MAX`` bytes."""
    into = encoding or "utf-8"
    size = _size_in(encoding)

    def rendered(_logger: object, _name: str, event: structlog.typing.EventDict) -> str:
        clean = cleaned(event)
        line = render(clean)
        if size(line) > LINE_BYTES_MAX:
            line = _fitting(clean, render, size)
        # What the stream cannot encode would be written as escapes anyway.
        return line.encode(into, errors="backslashreplace").decode(into)

    return rendered


def _size_in(encoding: str | None) -> Callable[[str], int]:
    """Return what counts the bytes of a line in a stream that escapes what it cannot encode."""
    into = encoding or "utf-8"
    return lambda line: len(line.encode(into, errors="backslashreplace"))


def _fitting(event: Mapping[str, Any], render: Render, size: Callable[[str], int]) -> str:
    fields = {
        key[:_KEY_MAX]: value
        if value is None or isinstance(value, bool | int | float)
        else text_of(value)
        for key, value in event.items()
    }
    first = {key: value for key, value in fields.items() if key in _FIRST_KEYS}
    line = ""
    for most in _VALUES_MAX:
        line = render({**_shortened(fields, most), "truncated": True})
        if size(line) <= LINE_BYTES_MAX:
            return line
    while size(line) > LINE_BYTES_MAX:  # hundreds of fields: the first ones
        fields = dict(list(fields.items())[: len(fields) // 2])
        line = render({**_shortened({**first, **fields}, _VALUES_MAX[-1]), "truncated": True})
    return line


def _shortened(event: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Cut long values in their middle: a traceback begins with where and ends with what."""
    return {
        key: _cut(value, most) if isinstance(value, str) and len(value) > most else value
        for key, value in event.items()
    }


def _cut(text: str, most: int) -> str:
    return text[: most // 2] + _CUT + text[-(most // 2) :]


class _Bridge(logging.Handler):
    """Hands what libraries log to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger("streamcore.other")
        try:
            message = record.getMessage()
        except Exception:  # its arguments do not fit
            message = str(record.msg)
        log.log(record.levelno, message, logger=record.name, exc_info=record.exc_info or None)


def _warning_in_a_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: object = None
) -> str:
    del line
    return f"{category.__name__}: {message} ({filename}:{lineno})"


def _uncaught(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
        return
    log = structlog.get_logger("streamcore.app")
    log.critical("uncaught exception", exc_info=(kind, error, traceback))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit or args.exc_value is None:
        return
    log = structlog.get_logger("streamcore.app")
    log.critical(
        "uncaught exception in a thread",
        thread=args.thread.name if args.thread else "",
        exc_info=(args.exc_type, args.exc_value, args.exc_traceback),
    )


def _unraisable(args: "sys.UnraisableHookArgs") -> None:
    if args.exc_value is None:
        return
    log = structlog.get_logger("streamcore.app")
    log.error(
        "an exception that could not be raised",
        where=text_of(args.object),
        exc_info=(args.exc_type, args.exc_value, args.exc_traceback),
    )
