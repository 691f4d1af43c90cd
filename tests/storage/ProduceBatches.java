// Writes one topic per compression, and one with transactions, through Apache Kafka's own producer.
// Arguments: bootstrap servers. Every record's key, value, time and header follow from its number.

import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class ProduceBatches {
    static final int RECORDS = 40;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        for (String compression : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            create(bootstrap, compression);
            try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, compression, null)) {
                for (int number = 0; number < RECORDS; number++) {
                    producer.send(record(compression, number));
                    if (number % 4 == 3) {
                        producer.flush();
                    }
                }
            }
        }
        create(bootstrap, "transactions");
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, "none", "mover")) {
            producer.initTransactions();
            for (int number = 0; number < 4; number++) {
                producer.beginTransaction();
                producer.send(record("transactions", number));
                if (number % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int number) {
        byte[] key = number % 5 == 0 ? null : ("key-" + number).getBytes();
        byte[] value = ("value-" + number + "-").repeat(50).getBytes();
        RecordHeader header = new RecordHeader("number", ("" + number).getBytes());
        return new ProducerRecord<>(topic, 0, 1_700_000_000_000L + number, key, value, List.of(header));
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String compression, String transactionalId) {
        Properties properties = new Properties();
        properties.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        properties.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, compression);
        properties.put(ProducerConfig.LINGER_MS_CONFIG, 10_000);
        if (transactionalId != null) {
            properties.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, transactionalId);
        }
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static void create(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap))) {
            NewTopic created = new NewTopic(topic, 1, (short) 1);
            created.configs(Map.of("index.interval.bytes", "1000", "retention.ms", "-1"));
            admin.createTopics(List.of(created)).all().get();
        }
    }
}
