"""The Mermaid flowchart; the text is compared with Java's in tests/parity."""

from streamcore import STR, Consumed, Materialized, StreamsBuilder


def test_the_flowchart_shows_topics_nodes_and_stores() -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(key=STR, value=STR)).to_table(Materialized("kept"))
    assert builder.build().mermaid() == (
        "flowchart TD\n"
        '    subgraph sub0 ["Sub-topology 0"]\n'
        '        node0["KSTREAM-SOURCE-0000000000"]\n'
        '        node2["KSTREAM-TOTABLE-0000000001"]\n'
        "    end\n"
        '    topic1(["in"]) --> node0\n'
        "    node0 --> node2\n"
        '    node2 <--> store3[("kept")]\n'
    )
