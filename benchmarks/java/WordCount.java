import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/**
 * The article's word count in Kafka Streams, the yardstick of the benchmark.
 *
 * <p>Arguments: bootstrap servers, application id, source topic, output topic, state folder,
 * processing guarantee, commit interval in ms, threads, and any further settings as name=value. Prints which tasks it
 * has whenever that changes. Runs until SIGTERM, then prints what was dropped, and leaves its group, which is kinder
 * than what close() does by default: then its tasks would wait for the session to end.
 */
public final class WordCount {
  private static final long WINDOW_SIZE_MS = 10_000L;

  private WordCount() {}

  public static void main(String[] args) throws InterruptedException {
    if (args.length < 8) {
      System.err.println(
          "usage: WordCount BOOTSTRAP APPLICATION_ID SOURCE OUTPUT STATE_DIR GUARANTEE"
              + " COMMIT_INTERVAL_MS THREADS [NAME=VALUE ...]");
      System.exit(2);
    }
    Properties settings = new Properties();
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[5]);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, args[7]);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, args[6]);
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
    for (String setting : Arrays.asList(args).subList(8, args.length)) {
      String[] parts = setting.split("=", 2);
      settings.put(parts[0], parts[1]);
    }
    System.out.println("settings " + new java.util.TreeMap<>(settings));
    System.out.println(
        "runtime java=" + Runtime.version()
            + " max_heap_mib=" + Runtime.getRuntime().maxMemory() / (1024 * 1024)
            + " processors=" + Runtime.getRuntime().availableProcessors());

    KafkaStreams streams = new KafkaStreams(topology(args[2], args[3]).build(), settings);
    CountDownLatch stopped = new CountDownLatch(1);
    streams.setUncaughtExceptionHandler(
        problem -> {
          problem.printStackTrace();
          stopped.countDown();
          return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    streams.setStateListener((now, before) -> System.out.println("state " + now));
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      // The metrics vanish with the threads, so they are read before the close.
      System.out.println("dropped " + Math.round(dropped(streams.metrics())));
      streams.close(CloseOptions.groupMembershipOperation(
          CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
      System.out.flush();
    }));
    streams.start();
    Thread teller = new Thread(() -> tellTasks(streams));
    teller.setDaemon(true);
    teller.start();
    stopped.await();
    System.exit(1);
  }

  private static StreamsBuilder topology(String source, String output) {
    Serde<String> text = Serdes.String();
    Serde<Windowed<String>> windowedText =
        WindowedSerdes.timeWindowedSerdeFrom(String.class, WINDOW_SIZE_MS);
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream(source, Consumed.with(text, text))
        .groupBy((key, word) -> word, Grouped.with(text, text))
        .windowedBy(TimeWindows.ofSizeWithNoGrace(java.time.Duration.ofMillis(WINDOW_SIZE_MS)))
        .count(Materialized.as("windowed-counts"))
        .toStream()
        .to(output, Produced.with(windowedText, Serdes.Long()));
    return builder;
  }

  private static void tellTasks(KafkaStreams streams) {
    String told = "";
    while (true) {
      String now = "";
      if (streams.state().isRunningOrRebalancing()) {
        now = streams.metadataForLocalThreads().stream()
            .flatMap(thread -> thread.activeTasks().stream())
            .map(task -> task.taskId().toString())
            .sorted()
            .collect(Collectors.joining(" "));
      }
      if (!now.equals(told)) {
        System.out.println("tasks " + now);
        told = now;
      }
      try {
        Thread.sleep(100);
      } catch (InterruptedException stop) {
        return;
      }
    }
  }

  private static double dropped(Map<MetricName, ? extends Metric> metrics) {
    double sum = 0;
    for (Map.Entry<MetricName, ? extends Metric> entry : metrics.entrySet()) {
      if (entry.getKey().name().equals("dropped-records-total")) {
        sum += ((Number) entry.getValue().metricValue()).doubleValue();
      }
    }
    return sum;
  }
}
