import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import java.time.Duration;

/** Prints Topology.describe() of the topologies that test_describe.py builds, one after the other. */
public class Describe {
    static final Map<String, Consumer<StreamsBuilder>> ALL = new LinkedHashMap<>();

    static KStream<String, String> in(StreamsBuilder b, String... topics) {
        return b.stream(Arrays.asList(topics), Consumed.with(Serdes.String(), Serdes.String()));
    }

    static Produced<String, String> text() {
        return Produced.with(Serdes.String(), Serdes.String());
    }

    static Grouped<String, String> grouped() {
        return Grouped.with(Serdes.String(), Serdes.String());
    }

    static ProcessorSupplier<String, String, String, String> passing() {
        return () -> new ContextualProcessor<String, String, String, String>() {
            @Override
            public void process(Record<String, String> record) {
                context().forward(record);
            }
        };
    }

    static {
        ALL.put("stateless", b -> in(b, "in")
            .map((k, v) -> KeyValue.pair(v, k))
            .filter((k, v) -> true)
            .filterNot((k, v) -> false)
            .flatMap((k, v) -> Arrays.asList(KeyValue.pair(k, v)))
            .flatMapValues(v -> Arrays.asList(v))
            .mapValues(v -> v)
            .peek((k, v) -> { })
            .selectKey((k, v) -> k)
            .to("out", text()));
        ALL.put("split", b -> {
            Map<String, KStream<String, String>> branches = in(b, "in").split()
                .branch((k, v) -> true)
                .branch((k, v) -> true, Branched.as("-second"))
                .defaultBranch();
            int i = 0;
            for (String name : new String[] {"KSTREAM-BRANCH-00000000011",
                    "KSTREAM-BRANCH-0000000001-second", "KSTREAM-BRANCH-00000000010"}) {
                KStream<String, String> branch = branches.get(name);
                for (int j = 0; j < i; j++) {
                    branch = branch.mapValues(v -> v);
                }
                branch.to("out" + i++, text());
            }
        });
        ALL.put("split-named", b -> in(b, "in").split(Named.as("by-"))
            .branch((k, v) -> true, Branched.as("small"))
            .noDefaultBranch().get("by-small").to("out", text()));
        ALL.put("merge", b -> in(b, "a").merge(in(b, "b")).selectKey((k, v) -> v)
            .groupByKey(grouped()).count().toStream()
            .to("out", Produced.with(Serdes.String(), Serdes.Long())));
        ALL.put("unnamed", b -> {
            KGroupedStream<String, String> by = in(b, "in").groupByKey(grouped());
            by.count(Materialized.with(Serdes.String(), Serdes.Long()));
            by.reduce((x, y) -> y).filter((k, v) -> true).mapValues(v -> v).toStream()
                .to("out", text());
            by.aggregate(() -> "", (k, v, a) -> a,
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("third")
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()));
        });
        ALL.put("shared-grouping", b -> {
            KGroupedStream<String, String> by = in(b, "in")
                .groupBy((k, v) -> v, Grouped.with("by-word", Serdes.String(), Serdes.String()));
            by.count(Named.as("counting"), Materialized.as("counts"));
            by.reduce((x, y) -> y, Materialized.as("latest")).toStream(Named.as("flow"))
                .to("out", text().withName("ending"));
        });
        ALL.put("two-groupings", b -> {
            KGroupedStream<String, String> by = in(b, "in").groupBy((k, v) -> v, grouped());
            by.count();
            by.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(10))).count();
        });
        ALL.put("sources", b -> {
            in(b, "words", "lines", "a", "topic-4", "b").to("all", text());
            in(b, "again").to("one", text());
            in(b, "again").mapValues(v -> v).to("two", text());
        });
        ALL.put("tables", b -> {
            KTable<String, String> table = b.table("compacted",
                Consumed.with(Serdes.String(), Serdes.String()), Materialized.as("known"));
            table.filterNot((k, v) -> false).toStream().to("out", text());
            in(b, "in").selectKey((k, v) -> v).toTable(Named.as("newest"),
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("kept")
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()));
            in(b, "other").map((k, v) -> KeyValue.pair(k, v)).toTable(
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("moved")
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()));
        });
        ALL.put("table-named", b -> b.table("compacted",
            Consumed.<String, String>as("them").withKeySerde(Serdes.String())
                .withValueSerde(Serdes.String()), Materialized.as("known")).toStream()
            .to("out", text()));
        ALL.put("processors", b -> {
            for (String name : new String[] {"beta", "alpha"}) {
                b.addStateStore(Stores.keyValueStoreBuilder(
                    Stores.persistentKeyValueStore(name), Serdes.String(), Serdes.String()));
            }
            in(b, "in").process(passing(), "beta", "alpha").process(passing(), Named.as("mine"))
                .to("out", text());
            in(b, "separate").process(passing(), "alpha");
            in(b, "alone").process(passing());
        });
        ALL.put("wide", b -> {
            KStream<String, String> stream = in(b, "in");
            for (int i = 0; i < 3; i++) {
                KStream<String, String> branch = stream;
                for (int j = 0; j < 3 - i; j++) {
                    branch = branch.peek((k, v) -> { });
                }
                branch.to("out" + i, text());
            }
        });
        ALL.put("windowed", b -> in(b, "in").groupBy((k, v) -> v, grouped())
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(10)))
            .reduce((x, y) -> y, Materialized.<String, String, WindowStore<Bytes, byte[]>>as("latest"))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
            .filter((k, v) -> true)
            .toStream((k, v) -> k.key()).to("out", text()));
    }

    public static void main(String[] arguments) {
        for (Map.Entry<String, Consumer<StreamsBuilder>> entry : ALL.entrySet()) {
            StreamsBuilder builder = new StreamsBuilder();
            entry.getValue().accept(builder);
            System.out.print("== " + entry.getKey() + "\n" + builder.build().describe());
        }
    }
}
