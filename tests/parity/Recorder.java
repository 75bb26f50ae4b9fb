import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Prints what Java's TopologyTestDriver answers to each record, for the topologies that
 * test_windows_recorded.py builds, one after the other.
 *
 * <p>Arguments: the records, as {@code key=value@timestamp}; {@code null} stands for no key and no
 * value. Sizes of windows in milliseconds.
 */
public class Recorder {
    private static final Duration SIZE = Duration.ofMillis(10);
    private static final Pattern RECORD = Pattern.compile("(\\w+)=(\\w+)@(\\d+)");
    private static final Map<String, Function<KGroupedStream<String, String>, Answers>> ALL =
        new LinkedHashMap<>();

    /** Connects the end of a topology with the topic "out". */
    private interface Answers {
        void to(String topic);
    }

    static {
        ALL.put("count", grouped -> topic -> grouped.count(Materialized.as("counts"))
            .toStream().to(topic, Produced.with(Serdes.String(), Serdes.Long())));
        ALL.put("tumbling10-nograce", grouped ->
            answers(counts(grouped, TimeWindows.ofSizeWithNoGrace(SIZE))));
        ALL.put("tumbling10-grace5", grouped ->
            answers(counts(grouped, TimeWindows.ofSizeAndGrace(SIZE, Duration.ofMillis(5)))));
        ALL.put("hopping10-5", grouped ->
            answers(counts(grouped,
                TimeWindows.ofSizeWithNoGrace(SIZE).advanceBy(Duration.ofMillis(5)))));
        ALL.put("tumbling10-suppress", grouped ->
            answers(counts(grouped, TimeWindows.ofSizeWithNoGrace(SIZE))
                .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
    }

    public static void main(String[] arguments) throws Exception {
        for (Map.Entry<String, Function<KGroupedStream<String, String>, Answers>> entry
                : ALL.entrySet()) {
            StreamsBuilder builder = new StreamsBuilder();
            KGroupedStream<String, String> grouped = builder
                .stream("in", Consumed.with(Serdes.String(), Serdes.String())).groupByKey();
            entry.getValue().apply(grouped).to("out");
            System.out.println("== " + entry.getKey());
            record(builder, arguments);
        }
    }

    private static KTable<Windowed<String>, Long> counts(
            KGroupedStream<String, String> grouped, TimeWindows windows) {
        return grouped.windowedBy(windows).count(Materialized.as("counts"));
    }

    private static Answers answers(KTable<Windowed<String>, Long> table) {
        return topic -> table.toStream().to(topic, Produced.with(
            WindowedSerdes.timeWindowedSerdeFrom(String.class, SIZE.toMillis()), Serdes.Long()));
    }

    private static void record(StreamsBuilder builder, String[] records) throws Exception {
        Path state = Files.createTempDirectory("recorder");
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "recorder");
        settings.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), settings)) {
            TestInputTopic<String, String> in =
                driver.createInputTopic("in", new StringSerializer(), new StringSerializer());
            TestOutputTopic<byte[], Long> out = driver.createOutputTopic(
                "out", new ByteArrayDeserializer(), new LongDeserializer());
            for (String text : records) {
                Matcher parts = RECORD.matcher(text);
                if (!parts.matches()) {
                    throw new IllegalArgumentException(text);
                }
                in.pipeInput(
                    orNull(parts.group(1)), orNull(parts.group(2)), Long.parseLong(parts.group(3)));
                StringBuilder line = new StringBuilder("in " + text + " ->");
                for (TestRecord<byte[], Long> answer : out.readRecordsToList()) {
                    line.append(' ').append(HexFormat.of().formatHex(answer.key()))
                        .append('=').append(answer.value()).append('@').append(answer.timestamp());
                }
                System.out.println(line);
            }
            System.out.println("dropped " + dropped(driver.metrics()));
        }
    }

    private static String orNull(String text) {
        return text.equals("null") ? null : text;
    }

    private static double dropped(Map<MetricName, ? extends Metric> metrics) {
        return metrics.entrySet().stream()
            .filter(entry -> entry.getKey().name().equals("dropped-records-total"))
            .mapToDouble(entry -> (Double) entry.getValue().metricValue())
            .sum();
    }
}
