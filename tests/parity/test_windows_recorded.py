"""Windowed and plain aggregations against what Java's TopologyTestDriver recorded, row by row.

The recordings use ``groupByKey``, one partition, a commit after each record. Sizes in milliseconds:
tumbling 10, hopping 10 by 5. `test_recorder.py` makes them again (marker java).
"""

import re

import pytest

from streamcore import (
    INT64,
    STR,
    Consumed,
    Materialized,
    Produced,
    StreamsBuilder,
    Windows,
    hopping,
    tumbling,
    windowed_serde,
)
from streamcore.task import TaskConfig
from streamcore.testing.driver import TopologyTestDriver

RECORDED = {
    "count": """
in a=x@1 -> 61=1@1
in a=null@2 ->
in null=x@3 ->
in a=x@12 -> 61=2@12
in a=x@5 -> 61=3@12
in a=x@9 -> 61=4@12
in b=x@23 -> 62=1@23
in a=x@13 -> 61=5@13
in a=x@19 -> 61=6@19
in a=x@20 -> 61=7@20
in a=x@40 -> 61=8@40
dropped 2.0
""",
    "tumbling10-nograce": """
in a=x@1 -> 610000000000000000=1@1
in a=null@2 -> 610000000000000000=2@2
in null=x@3 ->
in a=x@12 -> 61000000000000000a=1@12
in a=x@5 ->
in a=x@9 ->
in b=x@23 -> 620000000000000014=1@23
in a=x@13 ->
in a=x@19 ->
in a=x@20 -> 610000000000000014=1@20
in a=x@40 -> 610000000000000028=1@40
dropped 5.0
""",
    "tumbling10-grace5": """
in a=x@1 -> 610000000000000000=1@1
in a=null@2 -> 610000000000000000=2@2
in null=x@3 ->
in a=x@12 -> 61000000000000000a=1@12
in a=x@5 -> 610000000000000000=3@5
in a=x@9 -> 610000000000000000=4@9
in b=x@23 -> 620000000000000014=1@23
in a=x@13 -> 61000000000000000a=2@13
in a=x@19 -> 61000000000000000a=3@19
in a=x@20 -> 610000000000000014=1@20
in a=x@40 -> 610000000000000028=1@40
dropped 1.0
""",
    "hopping10-5": """
in a=x@1 -> 610000000000000000=1@1
in a=null@2 -> 610000000000000000=2@2
in null=x@3 ->
in a=x@12 -> 610000000000000005=1@12 61000000000000000a=1@12
in a=x@5 -> 610000000000000005=2@12
in a=x@9 -> 610000000000000005=3@12
in b=x@23 -> 62000000000000000f=1@23 620000000000000014=1@23
in a=x@13 ->
in a=x@19 -> 61000000000000000f=1@19
in a=x@20 -> 61000000000000000f=2@20 610000000000000014=1@20
in a=x@40 -> 610000000000000023=1@40 610000000000000028=1@40
dropped 6.0
""",
    "tumbling10-suppress": """
in a=x@1 ->
in a=null@2 ->
in null=x@3 ->
in a=x@12 -> 610000000000000000=2@2
in a=x@5 ->
in a=x@9 ->
in b=x@23 -> 61000000000000000a=1@12
in a=x@13 ->
in a=x@19 ->
in a=x@20 ->
in a=x@40 -> 610000000000000014=1@20 620000000000000014=1@23
dropped 5.0
""",
}

WINDOWS: dict[str, Windows | None] = {
    "count": None,
    "tumbling10-nograce": tumbling(size_ms=10),
    "tumbling10-grace5": tumbling(size_ms=10, grace_ms=5),
    "hopping10-5": hopping(size_ms=10, advance_ms=5),
    "tumbling10-suppress": tumbling(size_ms=10),
}


def driver_for(name: str, rule: str) -> TopologyTestDriver:
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed(key=STR, value=STR)).group_by_key()
    windows = WINDOWS[name]
    if windows is None:
        grouped.count(Materialized("counts")).to_stream().to("out", Produced(key=STR, value=INT64))
    else:
        table = grouped.windowed_by(windows).count(Materialized("counts"))
        table = table.suppress() if "suppress" in name else table
        serde = windowed_serde(STR, size_ms=windows.size_ms)
        table.to_stream().to("out", Produced(key=serde, value=INT64))
    return TopologyTestDriver(builder.build(), commit="each", config=TaskConfig(event_time=rule))


def none_or(text: str) -> str | None:
    return None if text == "null" else text


@pytest.mark.parametrize("rule", ["source", "operator"])
@pytest.mark.parametrize("name", RECORDED)
def test_every_answer_is_what_java_recorded(name: str, rule: str) -> None:
    with driver_for(name, rule) as driver:
        answers = []
        seen = 0
        for key, value, at_ms in re.findall(r"in (\w+)=(\w+)@(\d+) ->", RECORDED[name]):
            driver.input("in").pipe(none_or(key), none_or(value), at_ms=int(at_ms))
            out = driver.log("out").get(0, [])[seen:]
            seen += len(out)
            results = [
                f" {entry.key.hex()}={int.from_bytes(entry.value, 'big')}@{entry.stamp_ms}"
                for entry in out
                if entry.key is not None and entry.value is not None
            ]
            answers.append(f"in {key}={value}@{at_ms} ->" + "".join(results))
        dropped = float(sum(driver.dropped().values()))
        assert [*answers, f"dropped {dropped}"] == RECORDED[name].strip().splitlines()
