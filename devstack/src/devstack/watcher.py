"""Ends our servers when we die without doing so ourselves.

Run as a program of its own (`python watcher.py`, nothing but the standard library). It reads
lines `+PID` and `-PID` from its standard input; when that ends, because its parent ended in
whatever way, each process group still listed gets SIGTERM and, after a while, SIGKILL.
"""

import contextlib
import os
import signal
import sys
import time

_PATIENCE_S = 10.0


def main() -> None:
    """Follow the list until standard input ends, then end what is on it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        pid = int(line[1:])
        if line[0] == "+":
            groups.add(pid)
        else:
            groups.discard(pid)
    for number in (signal.SIGCONT, signal.SIGTERM):
        _send(groups, number)
    deadline = time.monotonic() + _PATIENCE_S
    while (groups := {group for group in groups if _exists(group)}) and time.monotonic() < deadline:
        time.sleep(0.05)
    _send(groups, signal.SIGKILL)


def _send(groups: set[int], number: signal.Signals) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    main()
