"""Dead letters: records that could not go on, byte for byte, with their origin in headers."""

from streamcore.model import Headers, Refused, Send
from streamcore.task.intake import Fault


def dead_letter(topic: str, fault: Fault, now_ms: int) -> Send:
    """Return the record for the dead-letter topic.

    Headers ``sc-dead-topic``, ``sc-dead-partition``, ``sc-dead-offset``, ``sc-dead-timestamp`` and
    ``sc-dead-reason`` come behind the record's own. The dead letter's stamp is neither negative nor
    ahead of the clock, or the broker would refuse it.
    """
    error = fault.error
    origin: Headers = (
        ("sc-dead-topic", error.partition.topic.encode()),
        ("sc-dead-partition", str(error.partition.partition).encode()),
        ("sc-dead-offset", str(error.offset).encode()),
        ("sc-dead-timestamp", str(fault.stamp_ms).encode()),
        ("sc-dead-reason", f"{type(error).__name__}: {error.reason}".encode()),
    )
    stamps_ms = [_taken(fault.stamp_ms, now_ms)]
    return Send(topic, [fault.key], [fault.value], stamps_ms, headers=[(*fault.headers, *origin)])


def dead_result(topic: str, refused: Refused, now_ms: int) -> Send:
    """Return a record that the broker refused, for the dead-letter topic.

    Header ``sc-dead-timestamp`` has its stamp; the dead letter's own is not ahead of the clock, or
    the broker would refuse it again.
    """
    send = refused.send
    stamp_ms = send.stamps_ms[0]
    own = () if send.headers is None else tuple(send.headers[0])
    origin: Headers = (
        ("sc-dead-topic", send.topic.encode()),
        ("sc-dead-partition", str(refused.partition).encode()),
        ("sc-dead-timestamp", str(stamp_ms).encode()),
        ("sc-dead-reason", f"ProductionError: {refused.reason}".encode()),
    )
    return Send(
        topic,
        send.keys,
        send.values,
        [_taken(stamp_ms, now_ms)],
        headers=[(*own, *origin)],
    )


def _taken(stamp_ms: int, now_ms: int) -> int:
    """Return the stamp, or the nearest one that a broker takes."""
    return max(0, min(stamp_ms, now_ms))
