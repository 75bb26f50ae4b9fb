"""Dead letters: records that could not go on, byte for byte, with their origin in headers."""

from streamcore.model import Headers, Send
from streamcore.task.intake import Fault


def dead_letter(topic: str, fault: Fault) -> Send:
    """Return the record for the dead-letter topic.

    Headers ``sc-dead-topic``, ``sc-dead-partition``, ``sc-dead-offset`` and ``sc-dead-reason`` come
    behind the record's own. A stamp that the broker would refuse becomes "none" (0).
    """
    error = fault.error
    origin: Headers = (
        ("sc-dead-topic", error.partition.topic.encode()),
        ("sc-dead-partition", str(error.partition.partition).encode()),
        ("sc-dead-offset", str(error.offset).encode()),
        ("sc-dead-reason", f"{type(error).__name__}: {error.reason}".encode()),
    )
    stamp_ms = max(0, fault.stamp_ms)
    return Send(topic, [fault.key], [fault.value], [stamp_ms], headers=[(*fault.headers, *origin)])
