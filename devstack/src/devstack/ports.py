"""Ports on the loopback interface."""

import random
import socket
from pathlib import Path

from devstack.errors import StackError

LOOPBACK = "127.0.0.1"
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 15_000
_HIGHEST = 32_000


def is_free(port: int) -> bool:
    """Say whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do it: a connection of a former server that lingers is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a free port that no outgoing connection is ever given.

    A port from the kernel's own choice (bind to 0) can be taken by any client while its server
    restarts; even the server's own client can connect to itself by it. So it comes from below.
    """
    highest = min(_HIGHEST, _lowest_outgoing() - 1)
    for _ in range(200):
        port = random.SystemRandom().randint(_LOWEST, highest)
        if is_free(port):
            return port
    raise StackError(f"no free port on {LOOPBACK} between {_LOWEST} and {highest}")


def require_free(port: int, what: str, setting: str) -> None:
    """Raise StackError when the port of `what` is taken; `setting` chooses another."""
    if not is_free(port):
        raise StackError(
            f"port {port} for {what} is taken: is another `make run` up? Stop it, or set {setting}"
        )


def answers(port: int) -> bool:
    """Say whether something accepts connections on the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _lowest_outgoing() -> int:
    try:
        return int(_RANGE_FILE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _HIGHEST
