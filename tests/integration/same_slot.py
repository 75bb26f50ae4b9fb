"""The aggregator as on a host of its own: TRIAL_SLOT is the whole name of its slot, if it is set.

Hosts that share a name and have the same folders name their slots alike, each on its own disk. On
one machine folders differ, so the name is given.
"""

import os

from aggregator.__main__ import cli
from streamcore import app


def main() -> None:
    slot = os.environ.pop("TRIAL_SLOT")
    if slot:
        app.slot_name = lambda *_: slot
    cli(prog_name="aggregator", args=[])


if __name__ == "__main__":
    main()
