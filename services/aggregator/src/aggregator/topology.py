"""The article's word count: words to counts per word and window.

``EMIT=updates`` sends the changed counts at each commit, which is what the article's code does.
``EMIT=final`` sends each count once, when its window closes, which is what its sentence says
("outputs the resulting word counts on each window boundary").
"""

from aggregator.settings import Settings
from streamcore import (
    INT64,
    STR,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    StreamsBuilder,
    Topology,
    tumbling,
    windowed_serde,
)

STORE = "windowed-counts"


def build(settings: Settings) -> Topology:
    """Return the topology; a result is a word with its window, and its count."""
    builder = StreamsBuilder()
    counts = (
        builder.stream(settings.words_topic, Consumed(key=STR, value=STR))
        .group_by(lambda _key, word: word, Grouped(key=STR, value=STR))
        .windowed_by(tumbling(size_ms=settings.window_size_ms, grace_ms=settings.grace_ms))
        .count(Materialized(STORE, retention_ms=settings.retention_ms))
    )
    if settings.emit == "final":
        counts = counts.suppress()
    counts.to_stream().to(settings.counts_topic, Produced(key=windowed_serde(STR), value=INT64))
    return builder.build()
