"""What `make chaos` was asked to do, checked before anything starts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devstack.errors import StackError
from devstack.places import RUN

GUARANTEES: Final = ("exactly_once_v2", "at_least_once")
DEFAULT_SECONDS: Final = 300
DEFAULT_RATE: Final = 2_000
SECONDS_MIN: Final = 80  # below, the faults would fall into one another


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """The options of one run; `rate` is in words a second, `seed` chooses faults and words."""

    seconds: int = DEFAULT_SECONDS
    guarantee: str = GUARANTEES[0]
    rate: int = DEFAULT_RATE
    seed: int = 1
    folder: Path = RUN / "chaos"

    def __post_init__(self) -> None:
        if self.guarantee not in GUARANTEES:
            raise StackError(f"GUARANTEE is {self.guarantee!r}; it is {' or '.join(GUARANTEES)}")
        if self.seconds < SECONDS_MIN:
            raise StackError(f"SECONDS is {self.seconds}; all faults need {SECONDS_MIN} at least")
        if self.rate < 1:
            raise StackError(f"RATE is {self.rate}; it is words a second and must be above 0")

    @property
    def exactly_once(self) -> bool:
        """Whether each count must be right to the unit."""
        return self.guarantee == "exactly_once_v2"

    @property
    def logs(self) -> Path:
        """The folder with one log for each instance of a service."""
        return self.folder / "logs"

    @property
    def state(self) -> Path:
        """The folder with the disk of each instance."""
        return self.folder / "state"
