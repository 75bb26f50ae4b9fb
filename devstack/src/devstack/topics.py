"""Topics that exist before any service starts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devstack.errors import StackError

_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it should be made; `settings` are the broker's names (`retention.ms`)."""

    name: str
    partitions: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)


def create_topics(client_settings: Mapping[str, str], topics: Iterable[Topic]) -> list[str]:
    """Create those that do not exist and return their names; the others are left as they are.

    Raises StackError when no broker answers, or refuses.
    """
    client = AdminClient({"log_level": 0, **client_settings})
    try:
        client.list_topics(timeout=_TIMEOUT_S)
    except KafkaException as problem:
        servers = client_settings["bootstrap.servers"]
        raise StackError(f"no broker answers at {servers}: {problem.args[0].str()}") from None
    wanted = [
        NewTopic(topic.name, topic.partitions, 1, config=dict(topic.settings)) for topic in topics
    ]
    created = []
    for name, future in client.create_topics(wanted, request_timeout=_TIMEOUT_S).items():
        try:
            future.result()
            created.append(name)
        except KafkaException as problem:
            error = problem.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise StackError(f"topic {name} cannot be created: {error.str()}") from None
    return created
