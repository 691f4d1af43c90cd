// A member by Apache Kafka's own consumer, for several topics. It tells what happens as the Python members do.
//
// Arguments: bootstrap servers, group, client id, assignor class, session timeout, metadata.max.age.ms, topics with commas.

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

public class JavaMember {
    static synchronized void say(String event, String details) {
        System.out.print("{\"event\": \"" + event + "\", \"at_ms\": " + System.currentTimeMillis() + details + "}\n");
        System.out.flush();
    }

    static void sayPartitions(String event, Collection<TopicPartition> partitions) {
        String listed = partitions.stream().map(one -> "[\"" + one.topic() + "\", " + one.partition() + "]")
            .collect(Collectors.joining(", "));
        say(event, ", \"partitions\": [" + listed + "]");
    }

    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("group.id", given[1]);
        settings.put("client.id", given[2]);
        settings.put("partition.assignment.strategy", given[3]);
        settings.put("session.timeout.ms", given[4]);
        settings.put("metadata.max.age.ms", given[5]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("default.api.timeout.ms", "10000");
        String string = "org.apache.kafka.common.serialization.StringDeserializer";
        settings.put("key.deserializer", string);
        settings.put("value.deserializer", string);
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join(30_000);
            } catch (InterruptedException ignored) { }
        }));
        consumer.subscribe(List.of(given[6].split(",")), new ConsumerRebalanceListener() {
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
                StringBuilder records = new StringBuilder();
                for (ConsumerRecord<String, String> one : polled) {
                    records.append(records.length() == 0 ? "" : ", ").append("[\"" + one.topic() + "\", "
                        + one.partition() + ", " + one.offset() + ", \"" + one.value() + "\"]");
                }
                say("consumed", ", \"records\": [" + records + "]");
                try {
                    consumer.commitSync();
                } catch (WakeupException stopped) {
                    throw stopped;
                } catch (KafkaException failure) {
                    say("commit_failed", ", \"error\": \"" + failure.getClass().getSimpleName() + "\"");
                }
            }
        } catch (WakeupException stopped) {
            consumer.close();
            say("closed", "");
        }
    }
}
