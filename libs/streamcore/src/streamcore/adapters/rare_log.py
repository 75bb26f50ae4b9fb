"""RareLog: faults that come by the hundred become a line now and then, with a count."""

import time
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaError, ThrottleEvent

_UNREACHABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - how the binding spells local codes
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
    }
)


class RareLog:
    """Writes one line per kind of fault, and says the next time how many were left out.

    A broker that is away makes each client report it several times a second, in several words. Who
    reads the log needs to know that it is so and that it still is. All clients of a process share
    one.
    """

    def __init__(
        self,
        interval_s: float = 10.0,
        monotonic_s: Callable[[], float] = time.monotonic,
        hear: Callable[[KafkaError], None] | None = None,
    ) -> None:
        """``hear`` is told every error of ``on_error``, whether it is written or not."""
        self._hear = hear
        self._log = structlog.get_logger("streamcore.kafka")
        self._interval_s = interval_s
        self._monotonic_s = monotonic_s
        self._told_s: dict[str, float] = {}
        self._left_out: dict[str, int] = {}
        self.throttled_ms = 0
        """For how long brokers have held back answers to any of the clients, in all."""

    def tell(self, kind: str, reason: str) -> None:
        """Tell it, unless the same kind was told less than an interval ago."""
        now_s = self._monotonic_s()
        if now_s < self._told_s.get(kind, float("-inf")) + self._interval_s:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._told_s[kind] = now_s
        left_out = self._left_out.pop(kind, 0)
        self._log.warning(kind, reason=reason, **({"left_out": left_out} if left_out else {}))

    def on_error(self, error: KafkaError) -> None:
        """Be librdkafka's ``error_cb``: news of brokers and connections, most of them passing."""
        if self._hear is not None:
            self._hear(error)
        if error.code() in _UNREACHABLE:
            self.tell("no connection to a broker", f"{error.str()} ({error.name()})")
        else:
            self.tell(f"broker trouble {error.name()}", error.str())

    def on_throttle(self, event: ThrottleEvent) -> None:
        """Be librdkafka's ``throttle_cb``: a broker held back an answer, or has ceased to."""
        held_ms = round(event.throttle_time * 1_000)
        if held_ms <= 0:
            return
        self.throttled_ms += held_ms
        reason = f"{event.broker_name} held back an answer for {held_ms} ms"
        self.tell("throttled by a quota", f"{reason}; {self.throttled_ms} ms in all")
