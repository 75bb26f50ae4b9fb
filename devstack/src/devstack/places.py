"""Where things lie: everything the stack fetches or writes stays inside the project."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache"  # what was downloaded or can be made again
RUN = ROOT / ".run"  # the state of `make run`
