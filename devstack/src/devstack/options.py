"""What `make run` was asked to do, checked before anything starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from devstack.errors import StackError
from devstack.places import ROOT, RUN
from devstack.topics import Topic

DEFAULT_RATE = 200.0
# Of `make heroku-sim`, far below what basic-0 lets through: a line becomes dozens of records.
DEFAULT_LINES_PER_S = 10.0
DEFAULT_KAFKA_PORT = 19_092
DEFAULT_POSTGRES_PORT = 15_432
PARTITIONS = 4
# Lines and words keep their own timestamps, which may be years old: a broker deletes by those.
_FOR_EVER = {"retention.ms": "-1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of one run. `env` is the environment that the services inherit."""

    env: Mapping[str, str]
    scale: Mapping[str, int] = field(default_factory=dict)
    text: Path | None = None
    rate: float = DEFAULT_RATE
    until_counts: bool = False
    give_up_s: float = 180.0
    windows: int = 3
    words: int = 12
    root: Path = ROOT
    folder: Path = RUN
    kafka_port: int = DEFAULT_KAFKA_PORT
    postgres_port: int = DEFAULT_POSTGRES_PORT

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise StackError(f"RATE is {self.rate:g}; it is lines a second and must be above 0")
        if self.text is not None and not self.text.is_file():
            raise StackError(f"TEXT: there is no file {self.text}")

    @property
    def logs(self) -> Path:
        """The folder with one log for each child."""
        return self.folder / "logs"

    @property
    def topics(self) -> list[Topic]:
        """The topics that the services expect to find."""
        prefix = self.env.get("KAFKA_PREFIX", "")
        return [
            Topic(f"{prefix}textlines", PARTITIONS, _FOR_EVER),
            Topic(f"{prefix}words", PARTITIONS, _FOR_EVER),
            Topic(f"{prefix}windowed-counts", PARTITIONS, _FOR_EVER),
        ]

    @property
    def feed(self) -> list[str]:
        """The arguments of `python -m ingest` that write lines, for ever unless TEXT ends."""
        source = ["--sample", "--loop"] if self.text is None else [str(self.text.resolve())]
        return ["feed", *source, "--rate", f"{self.rate:g}"]
