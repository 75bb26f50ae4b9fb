"""Quotas of a plan: how many bytes a second the broker takes from an app, and gives it.

No client library in Python can ask for them, so the one request is written out here: it is
AlterClientQuotas (key 49) in its version 0.
"""

import socket
import struct

from devstack.errors import StackError

PRODUCE = "producer_byte_rate"
CONSUME = "consumer_byte_rate"
_ALTER_CLIENT_QUOTAS = 49
_TIMEOUT_S = 20.0


def set_quotas(bootstrap: str, user: str, produce: int | None, consume: int | None) -> None:
    """Set the bytes a second of a certificate's name; None takes the limit away."""
    ops = b"".join(
        _string(name) + struct.pack(">d?", rate or 0.0, rate is None)
        for name, rate in ((PRODUCE, produce), (CONSUME, consume))
    )
    entity = struct.pack(">i", 1) + _string("user") + _string(user)
    body = struct.pack(">i", 1) + entity + struct.pack(">i", 2) + ops + struct.pack(">?", False)
    header = struct.pack(">hhi", _ALTER_CLIENT_QUOTAS, 0, 1) + _string("devstack")
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        _correlation, _throttled_ms, _entries, code = struct.unpack_from(">iiih", answer.read(size))
    if code:
        raise StackError(f"the broker refuses quotas for {user}: error {code}")


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
