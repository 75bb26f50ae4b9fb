"""Settings for librdkafka, made from ours: pure functions, no environment, no file.

PEM text goes in as it is (``ssl.*.pem``), so no key ever touches a disk. What is set here and why
is the whole difference to librdkafka's defaults.
"""

import re
from collections.abc import Mapping

from streamcore.config import SCOPES, StreamsConfig

Settings = dict[str, str | int | float | bool]

_PEM_BLOCK = re.compile(r"(-----BEGIN [^-]+-----)([^-]*)(-----END [^-]+-----)\s*")


def consumer_settings(config: StreamsConfig, group: str) -> Settings:
    """Settings of the member of the group."""
    return {
        **_common(config),
        **_reading(group),
        # Rows are handed out faster than one long wait of a fetch; a newly assigned partition has
        # to wait for the fetch that is under way.
        "fetch.wait.max.ms": 100,
        # Its result is not obeyed, but it shows every member that it sees the same list. A consumer
        # that does obey range, the default, is refused by the broker beside ours.
        "partition.assignment.strategy": "roundrobin",
        "session.timeout.ms": config.session_timeout_ms,
        # A member learns of a rebalance from the answer to its heartbeat, and all members wait for
        # the last one to join: this is the longest part of the time in which nobody works. No
        # session is shorter than a second, so several fit into each.
        "heartbeat.interval.ms": 200,
        "max.poll.interval.ms": config.max_poll_interval_ms,
        **_own(config.kafka_settings, "consumer"),
    }


def reader_settings(config: StreamsConfig, group: str) -> Settings:
    """Settings of a reader of changelogs; it names the group, but never joins it."""
    return {
        **_common(config),
        **_reading(group),
        # The end of a partition shows in an empty answer, which comes after that time. A standby is
        # at its end nearly always: it would have a hundred of them a second, out of a quota.
        "fetch.wait.max.ms": 100 if config.num_standby_replicas else 10,
        **_own(config.kafka_settings, "restore"),
    }


def producer_settings(config: StreamsConfig, transactional_id: str | None) -> Settings:
    """Settings of an idempotent producer, or of a transactional one."""
    timeout_ms = config.session_timeout_ms
    transaction: Settings = {}
    if transactional_id is not None:
        timeout_ms = config.transaction_timeout_ms
        transaction = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": config.transaction_timeout_ms,
        }
    return {
        **_common(config),
        "enable.idempotence": True,
        "partitioner": "murmur2_random",  # as Kafka's own clients do; the default is CRC32
        # Full batches; a commit flushes and waits for nothing.
        "linger.ms": 100,
        "batch.size": 1_000_000,
        "compression.type": "lz4",
        # A worker that was frozen for longer than its session must not write any more.
        "message.timeout.ms": timeout_ms,
        # librdkafka would hold 1 GiB; a full queue is back-pressure, and that is what we want.
        "queue.buffering.max.kbytes": 32 * 1024,
        "queue.buffering.max.messages": 100_000,
        "delivery.report.only.error": True,
        **transaction,
        **_own(config.kafka_settings, "producer"),
    }


def admin_settings(config: StreamsConfig) -> Settings:
    """Settings of the client that asks about topics and makes them."""
    return {**_common(config), **_own(config.kafka_settings, "admin")}


def _common(config: StreamsConfig) -> Settings:
    brokers = config.brokers
    settings: Settings = {
        "bootstrap.servers": brokers.servers,
        # Faults come through error_cb and are told rarely; librdkafka itself would write lines by
        # the hundred to standard error.
        "log_level": 0,
        "enable.metrics.push": False,  # nobody asked for our numbers
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 2_000,
        "topic.metadata.refresh.interval.ms": 60_000,
    }
    if brokers.tls:
        settings |= {
            "security.protocol": "ssl",
            "ssl.ca.pem": _pem(config.kafka_trusted_cert),
            "ssl.certificate.pem": _pem(config.kafka_client_cert),
            "ssl.key.pem": _pem(config.kafka_client_cert_key),
            # Such brokers have no stable host names; that their certificate comes from the given
            # authority is checked all the same.
            "ssl.endpoint.identification.algorithm": "none",
        }
    return settings


def _reading(group: str) -> Settings:
    return {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Positions are always given. One that is out of range is an error that we must see.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        # Under at-least-once too: whoever writes our input may use transactions, and what an
        # aborted one wrote was never said. Without transactions it costs nothing.
        "isolation.level": "read_committed",
        # Prefetched rows are bounded: by default 64 MiB, and a queue over its limit is looked at
        # again after a whole second, which alone keeps a reader to some 200,000 rows a second.
        "queued.max.messages.kbytes": 16 * 1024,
        "queued.min.messages": 5_000,
        "fetch.queue.backoff.ms": 10,
        "max.partition.fetch.bytes": 1024 * 1024,
        "fetch.max.bytes": 16 * 1024 * 1024,
        # How long one commit may hang on a coordinator that does not answer.
        "socket.timeout.ms": 10_000,
    }


def _pem(text: str) -> str:
    """Return the text with the line ends that OpenSSL wants.

    On their way through files and command lines they may have become two characters each, or
    spaces, or have got lost between two certificates; lines may have been indented.
    """
    text = text.replace("\\r", "").replace("\\n", "\n")
    text = _PEM_BLOCK.sub(lambda block: _in_lines(*block.groups()), text)
    return "\n".join(line.strip() for line in text.splitlines()).strip() + "\n"


def _in_lines(begin: str, body: str, end: str) -> str:
    lines = body.strip().splitlines()
    return "\n".join((begin, *(lines if len(lines) > 1 else body.split()), end, ""))


def _own(settings: Mapping[str, str], kind: str) -> Settings:
    """Return the user's settings for this kind of client; a scoped one wins over a general one."""
    general: Settings = {}
    scoped: Settings = {}
    for key, value in settings.items():
        scope, _, rest = key.partition(".")
        if scope == kind:
            scoped[rest] = value
        elif scope not in SCOPES:
            general[key] = value
    return {**general, **scoped}
