"""The engine's log on standard error, for programs that have not set structlog up themselves."""

import sys

import structlog


def configure_logging(log_format: str) -> None:
    """Send the engine's log to stderr, unless the program has set structlog up already."""
    if structlog.is_configured():
        return
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=log_format == "auto" and sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,  # worker=<n>, see adapters.processes
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        # A line and its end in one write: worker processes share one log.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
