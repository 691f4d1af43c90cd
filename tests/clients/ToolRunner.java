// Runs Apache Kafka's command line tools one after the other in one JVM, since starting one for each takes a second.
//
// In: a line for each run, the main class and its arguments with tabs between them. Out: a line with the exit status
// and the number of bytes the tool wrote, to stdout and stderr together, then those bytes. PassOn, below, runs like one.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Exit;

public class ToolRunner {
    static final class Exited extends Error { }

    private static ByteArrayOutputStream written;
    private static Integer status;
    private static byte[] said;

    public static void main(String[] ignored) throws Exception {
        PrintStream replies = System.out;
        Exit.setExitProcedure((given, message) -> {
            end(given);
            throw new Exited();
        });
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            written = new ByteArrayOutputStream();
            status = null;
            PrintStream both = new PrintStream(written, true);
            System.setOut(both);
            System.setErr(both);
            String[] words = line.split("\t");
            try {
                String[] arguments = Arrays.copyOfRange(words, 1, words.length);
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
                end(0);
            } catch (Exception failure) {
                failure.printStackTrace(both);
                end(1);
            }
            replies.print(status + " " + said.length + "\n");
            replies.write(said);
            replies.flush();
        }
    }

    // The first exit counts: a JVM would have ended there, but here a tool may catch what we throw, and go on.
    private static void end(int given) {
        System.out.flush();
        if (status == null) {
            status = given;
            said = written.toByteArray();
        }
    }
}

// A producer sends numbered records for some time, and a member of a group reads them meanwhile and commits.
//
// Arguments: a file with the settings of both, topic, group, for how many ms, and how often each client must authenticate
// again before it ends. It prints one line of JSON: how many records were sent and read, how many different ones, the
// committed offset, and how often the clients authenticated again.
class PassOn {
    static final long PATIENCE_MS = 60_000;
    static final int AT_ONCE = 10;

    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        try (FileReader file = new FileReader(given[0])) {
            settings.load(file);
        }
        settings.put("group.id", given[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        long ends = System.currentTimeMillis() + Long.parseLong(given[3]);
        long renewals = Long.parseLong(given[4]);
        List<String> read = new ArrayList<>();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
             KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            do {
                for (int each = 0; each < AT_ONCE; each++) {
                    sent.add(producer.send(new ProducerRecord<>(given[1], Integer.toString(sent.size()))));
                }
                if (consumer.subscription().isEmpty()) {
                    producer.flush();
                    consumer.subscribe(List.of(given[1]));
                }
                poll(consumer, read);
            } while (System.currentTimeMillis() < ends
                || (again(producer, consumer) < renewals && System.currentTimeMillis() < ends + PATIENCE_MS));
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
            while (read.size() < sent.size() && System.currentTimeMillis() < ends + PATIENCE_MS) {
                poll(consumer, read);
            }
            consumer.commitSync();
            TopicPartition first = new TopicPartition(given[1], 0);
            long committed = consumer.committed(java.util.Set.of(first)).get(first).offset();
            System.out.printf("{\"sent\": %d, \"read\": %d, \"different\": %d, \"committed\": %d, \"again\": %d}%n",
                sent.size(), read.size(), new HashSet<>(read).size(), committed, again(producer, consumer));
        }
    }

    private static void poll(KafkaConsumer<String, String> consumer, List<String> read) {
        for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(20))) {
            read.add(each.value());
        }
    }

    // How often the one of the two has authenticated again that did so less often.
    private static long again(KafkaProducer<?, ?> producer, KafkaConsumer<?, ?> consumer) {
        return Math.min(authenticatedAgain(producer.metrics()), authenticatedAgain(consumer.metrics()));
    }

    private static long authenticatedAgain(Map<MetricName, ? extends Metric> metrics) {
        return metrics.entrySet().stream()
            .filter(each -> each.getKey().name().equals("successful-reauthentication-total"))
            .filter(each -> each.getKey().group().matches("(producer|consumer)-metrics"))
            .mapToLong(each -> ((Double) each.getValue().metricValue()).longValue()).sum();
    }
}
