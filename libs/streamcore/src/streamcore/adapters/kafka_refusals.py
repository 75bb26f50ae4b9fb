"""Refusals: brokers that do not take us for who we are, or that we do not; told from an outage.

A client that meets a foreign certificate, or whose own is refused, connects again for ever, and all
that its calls say is that there was no answer. That looks like an outage, and it is none: waiting
mends it only if somebody changes the cluster, and settings come in with a new process alone. So it
may last for a while (brokers get new certificates one after the other), and then it is an error.
"""

import re
import time
from collections.abc import Callable

from confluent_kafka import KafkaError

from streamcore.errors import AuthorizationError

AT_START_S = 8.0
"""How long nothing but refusals may come before any broker has answered."""

IN_MID_RUN_S = 90.0
"""The same afterwards; questions are asked every 30 s, and an answer of any broker ends it."""

FRESH_S = 20.0
"""A refusal that is older says nothing of now; a client connects again every few seconds."""

COUNT_MIN = 3
"""One may be an accident."""

_CODES = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}  # noqa: SLF001
)
# Alerts of TLS about certificates: bad, unsupported, revoked, expired, unknown, of an unknown
# authority, denied, missing. Everything else that breaks a handshake may be a broker that starts.
_CERTIFICATE = re.compile(
    r"certificate verify failed|SSL alert number (?:4[2-6]|48|49|116)\b", re.IGNORECASE
)


class Refusals:
    """What the clients of a cluster heard of refusals since a broker answered one of them."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._asked_s: float | None = None
        self._first_s: float | None = None
        self._latest_s = 0.0
        self._count = 0
        self._reason = ""
        self._patience_s = AT_START_S

    def hear(self, error: KafkaError) -> None:
        """Take note of what a client was told about its brokers and connections."""
        if error.code() in _CODES or _CERTIFICATE.search(error.str()):
            self._latest_s = self._monotonic_s()
            if self._first_s is None:
                self._first_s = self._latest_s if self._asked_s is None else self._asked_s
            self._count += 1
            self._reason = error.str()

    def asked(self) -> None:
        """Take note of a question: while it waits for its answer, its client hears of nothing."""
        self._asked_s = self._monotonic_s()

    def answered(self) -> None:
        """A broker has answered: whoever refuses us is not all of them."""
        self._asked_s = self._first_s = None
        self._count, self._patience_s = 0, IN_MID_RUN_S

    def raise_if_lasting(self) -> None:
        """Raise what the brokers say, if they have said nothing else for too long.

        :raises AuthorizationError: with the last reason.
        """
        if self._first_s is None or self._count < COUNT_MIN:
            return
        now_s = self._monotonic_s()
        if now_s - self._first_s >= self._patience_s and now_s - self._latest_s <= FRESH_S:
            raise AuthorizationError(
                "no broker takes this client's certificate or password, or it does not take "
                f"theirs: {self._reason}; compare the certificates (kafka_trusted_cert, "
                "kafka_client_cert, kafka_client_cert_key) or the password with the cluster's"
            )
