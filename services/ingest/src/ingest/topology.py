"""Lines to words, each in the partition of its line, so that the order of time is kept."""

from ingest.settings import Settings
from ingest.words import words
from streamcore import BYTES, STR, Consumed, Produced, StreamsBuilder, Topology


def build(settings: Settings) -> Topology:
    """Return the topology: a word has a null key, and timestamp and partition of its line.

    Whatever key a line has is not looked at, so any bytes will do.
    """
    builder = StreamsBuilder()
    (
        builder.stream(settings.lines_topic, Consumed(key=BYTES, value=STR))
        .drop_null_values()
        .select_key(lambda _key, _line: None)
        .flat_map_values(words)
        .to(settings.words_topic, Produced(key=BYTES, value=STR, same_partition=True))
    )
    return builder.build()
