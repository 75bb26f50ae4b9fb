import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes words as keyed records, with the Java client's own choice of the partition.
 *
 * <p>Arguments: bootstrap servers, topic, timestamp of the first record in ms (each later one is 1
 * ms younger). Standard input: a word a line, in UTF-8; it becomes both key and value. Prints how
 * many records are acknowledged.
 */
public class WordProducer {
    public static void main(String[] arguments)
            throws IOException, InterruptedException, ExecutionException {
        String topic = arguments[1];
        long firstMs = Long.parseLong(arguments[2]);
        Map<String, Object> settings =
            Map.of(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        // Not System.in's default: what that is depends on the machine's locale.
        BufferedReader words =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String word = words.readLine(); word != null; word = words.readLine()) {
                sent.add(producer.send(
                    new ProducerRecord<>(topic, null, firstMs + sent.size(), word, word)));
            }
        }
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
        System.out.println(sent.size());
    }
}
