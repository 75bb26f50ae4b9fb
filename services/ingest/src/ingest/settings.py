"""Settings of ingest: environment to a frozen value."""

from collections.abc import Mapping
from typing import Any, ClassVar

from streamcore.settings import ServiceSettings


class Settings(ServiceSettings):
    """The topics; each has a plain name too, since the next service reads the same variable."""

    service: ClassVar[str] = "ingest"
    plain_names: ClassVar[Mapping[str, str]] = {
        "lines_topic": "LINES_TOPIC",
        "words_topic": "WORDS_TOPIC",
    }
    engine_defaults: ClassVar[Mapping[str, Any]] = {"application_id": "ingest-app"}

    lines_topic: str = "textlines"
    words_topic: str = "words"
