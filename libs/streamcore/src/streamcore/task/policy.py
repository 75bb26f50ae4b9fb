"""What becomes of a record that cannot go on: stop in front of it, skip it, or dead-letter it."""

from streamcore.errors import ProcessingError, RecordError
from streamcore.operators.base import DESERIALIZATION, PROCESSING, TIMESTAMP, Drops, Outbox
from streamcore.task.config import CONTINUE, DEAD_LETTER, STOP, TaskConfig
from streamcore.task.dead_letter import dead_letter
from streamcore.task.intake import Fault


def decide(fault: Fault, config: TaskConfig, drops: Drops, outbox: Outbox, now_ms: int) -> bool:
    """Apply the policy for this kind of fault; False: the task stops in front of the record."""
    policy, reason = _policy_of(fault.error, config)
    if policy == STOP:
        return False
    drops[reason] += 1
    if policy == DEAD_LETTER:
        assert config.dead_letter_topic is not None, "checked with the settings"
        outbox.append(dead_letter(config.dead_letter_topic, fault, now_ms))
    else:
        assert policy == CONTINUE, policy
    return True


def _policy_of(error: RecordError, config: TaskConfig) -> tuple[str, str]:
    if isinstance(error, ProcessingError):
        return config.processing_error, PROCESSING
    if error.setting == "timestamp_error":
        return config.timestamp_error, TIMESTAMP
    return config.deserialization_error, DESERIALIZATION
