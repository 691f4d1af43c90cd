// A member by Apache Kafka's own consumer. It takes orders, and tells what happens, as the Python members do.
//
// Argument: the orders as JSON (tests/clients/members/telling.py). SIGUSR1 makes the processing of the next records long.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.WakeupException;
import sun.misc.Signal;

public class JavaMember {
    static final AtomicInteger SLOW = new AtomicInteger();
    static final PrintStream OUT = System.out;

    static synchronized void say(String event, String details) {
        OUT.print("{\"event\": \"" + event + "\", \"at_ms\": " + System.currentTimeMillis() + details + "}\n");
        OUT.flush();
    }

    static void sayPartitions(String event, Collection<TopicPartition> partitions) {
        String listed = partitions.stream().map(one -> "[\"" + one.topic() + "\", " + one.partition() + "]")
            .collect(Collectors.joining(", "));
        say(event, ", \"partitions\": [" + listed + "]");
    }

    static Properties settings(JsonNode orders) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", orders.get("bootstrap").asText());
        settings.put("group.id", orders.get("group").asText());
        settings.put("client.id", orders.get("client_id").asText());
        settings.put("metadata.max.age.ms", orders.get("metadata_max_age_ms").asText());
        settings.put("max.poll.interval.ms", orders.get("max_poll_interval_ms").asText());
        settings.put("group.protocol", orders.get("protocol").asText());
        if (!orders.get("instance_id").isNull()) {
            settings.put("group.instance.id", orders.get("instance_id").asText());
        }
        if (orders.get("protocol").asText().equals("classic")) {
            settings.put("session.timeout.ms", orders.get("session_timeout_ms").asText());
            settings.put("heartbeat.interval.ms", orders.get("heartbeat_interval_ms").asText());
            settings.put("partition.assignment.strategy", orders.get("assignor").asText());
        } else if (!orders.get("assignor").asText().isEmpty()) {
            settings.put("group.remote.assignor", orders.get("assignor").asText());
        }
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("default.api.timeout.ms", "10000");
        String string = "org.apache.kafka.common.serialization.StringDeserializer";
        settings.put("key.deserializer", string);
        settings.put("value.deserializer", string);
        return settings;
    }

    static void process(ConsumerRecords<String, String> polled, long slowMs) throws InterruptedException {
        if (SLOW.getAndSet(0) > 0) {
            say("busy", "");
            Thread.sleep(slowMs);
        }
        List<String> records = new ArrayList<>();
        for (ConsumerRecord<String, String> one : polled) {
            records.add("[\"" + one.topic() + "\", " + one.partition() + ", " + one.offset() + ", \"" + one.value()
                + "\"]");
        }
        say("consumed", ", \"records\": [" + String.join(", ", records) + "]");
    }

    public static void main(String[] given) throws Exception {
        System.setOut(System.err); // the log goes there
        JsonNode orders = new ObjectMapper().readTree(given[0]);
        Signal.handle(new Signal("USR1"), signal -> SLOW.incrementAndGet());
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings(orders));
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join(30_000);
            } catch (InterruptedException ignored) { }
        }));
        List<String> topics = StreamSupport.stream(orders.get("topics").spliterator(), false).map(JsonNode::asText)
            .collect(Collectors.toList());
        consumer.subscribe(topics, new ConsumerRebalanceListener() {
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                sayPartitions("assigned", partitions);
            }

            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                sayPartitions("revoked", partitions);
            }

            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                sayPartitions("lost", partitions);
            }
        });
        say("started", "");
        try {
            while (true) {
                ConsumerRecords<String, String> polled = consumer.poll(Duration.ofMillis(200));
                if (polled.isEmpty()) {
                    continue;
                }
                process(polled, orders.get("slow_ms").asLong());
                try {
                    consumer.commitSync();
                } catch (WakeupException | FencedInstanceIdException stopped) {
                    throw stopped;
                } catch (KafkaException failure) {
                    say("commit_failed", ", \"error\": \"" + failure.getClass().getSimpleName() + "\"");
                }
            }
        } catch (WakeupException stopped) {
            consumer.close();
            say("closed", "");
        } catch (FencedInstanceIdException fenced) {
            say("fenced", "");
            Runtime.getRuntime().halt(3);  // the hook would wait for this thread
        }
    }
}
