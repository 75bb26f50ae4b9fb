"""What a reader does while no broker answers; with one, the contract suite shows it."""

import time

from streamcore.adapters.kafka_consumer import LEADERS_TIMEOUT_S, KafkaChangelogReader
from streamcore.adapters.kafka_settings import Settings
from streamcore.adapters.rare_log import RareLog
from streamcore.model import TopicPartition


def test_a_broker_that_is_away_is_asked_for_leaders_once_and_not_for_each_changelog() -> None:
    away: Settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "app", "log_level": 0}
    reader = KafkaChangelogReader(away, RareLog())
    changelogs = 20
    begun_s = time.monotonic()
    reader.assign({TopicPartition(f"changelog-{one}", 0): 0 for one in range(changelogs)})
    # The turn waits for it, and the order to stop does, too.
    assert time.monotonic() - begun_s < changelogs * LEADERS_TIMEOUT_S / 2
    reader.close()
