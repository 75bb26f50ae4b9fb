"""P12's topology as a program: lines to words, one header added, and through a table's topic."""

import os
import sys
from typing import Any

from streamcore import STR, Consumed, Materialized, Processor, Produced, StreamsBuilder, Topology
from streamcore.app import StreamsApp
from streamcore.config import StreamsConfig


class AddToA(Processor):
    def process(self, key: Any, value: Any) -> None:
        own = self.context.headers
        added = (*own, ("added", b"x")) if value == "a" else own
        self.context.forward(key, value, headers=added)


def build() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("lines", Consumed(key=STR, value=STR))
        .flat_map_values(str.split)
        .process(AddToA)
        .select_key(lambda _key, word: word)
        .to_table(Materialized("last", key=STR, value=STR))
        .to_stream()
        .to("out", Produced(key=STR, value=STR))
    )
    return builder.build()


def main() -> int:
    config = StreamsConfig(
        application_id="headers",
        prefix=os.environ["KAFKA_PREFIX"],
        kafka_url=os.environ["KAFKA_URL"],
        state_dir=os.environ["STREAMCORE_STATE_DIR"],
        metrics_port=int(os.environ["STREAMCORE_METRICS_PORT"]),
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=200,
    )
    return StreamsApp(build(), config).run()


if __name__ == "__main__":
    sys.exit(main())
