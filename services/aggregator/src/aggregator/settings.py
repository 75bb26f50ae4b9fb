"""Settings of the aggregator: environment to a frozen value."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from streamcore.settings import ServiceSettings


class Settings(ServiceSettings):
    """Windows and topics; the plain names are the ones of the article's example.

    ``retention_ms`` is how long counts stay in the store, from the start of their window; None
    leaves it to the engine.
    """

    service: ClassVar[str] = "aggregator"
    plain_names: ClassVar[Mapping[str, str]] = {
        "emit": "EMIT",
        "window_size_ms": "WINDOW_SIZE_MS",
        "grace_ms": "GRACE_MS",
        "words_topic": "WORDS_TOPIC",
        "counts_topic": "COUNTS_TOPIC",
    }
    engine_defaults: ClassVar[Mapping[str, Any]] = {"application_id": "aggregator-app"}

    emit: Literal["updates", "final"] = "updates"
    window_size_ms: int = Field(default=10_000, gt=0)
    grace_ms: int = Field(default=0, ge=0)
    retention_ms: int | None = None
    words_topic: str = "words"
    counts_topic: str = "windowed-counts"

    @model_validator(mode="after")
    def _windows_stay_until_they_close(self) -> Self:
        needed_ms = self.window_size_ms + self.grace_ms
        if self.retention_ms is not None and self.retention_ms < needed_ms:
            raise ValueError(
                f"retention_ms is {self.retention_ms}; it must be at least window_size_ms + "
                f"grace_ms ({needed_ms}), or windows are forgotten before they close"
            )
        return self
