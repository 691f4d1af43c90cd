import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Times Kafka's own StickyAssignor on the group described in a file, after one event, in milliseconds of CPU of this
 * thread. Two figures a run: assign() alone, which reads the user data, and with the subscriptions read from bytes too.
 *
 * The file has a line for each topic ("topic NAME BEFORE AFTER": partitions) and each member
 * ("member ID STAYS TOPIC,TOPIC,..."), where STAYS is "both", "before" (it leaves) or "after" (it joins).
 */
public final class StickyBench {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    public static void main(String[] arguments) throws Exception {
        int warmUps = Integer.parseInt(arguments[1]);
        int runs = Integer.parseInt(arguments[2]);
        Map<String, Integer> before = new HashMap<>();
        Map<String, Integer> after = new HashMap<>();
        Map<String, List<String>> topicsOf = new HashMap<>();
        Set<String> there = new HashSet<>();
        Set<String> then = new HashSet<>();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ");
            if (words[0].equals("topic")) {
                before.put(words[1], Integer.parseInt(words[2]));
                after.put(words[1], Integer.parseInt(words[3]));
            } else {
                topicsOf.put(words[1], Arrays.asList(words[3].split(",")));
                if (!words[2].equals("after")) there.add(words[1]);
                if (!words[2].equals("before")) then.add(words[1]);
            }
        }
        Map<String, ByteBuffer> newcomers = new HashMap<>();
        for (String member : topicsOf.keySet())
            newcomers.put(member, ConsumerProtocol.serializeSubscription(
                new Subscription(topicsOf.get(member), null, List.of(), -1, Optional.empty())));
        Map<String, Assignment> previous = there.isEmpty() ? Map.of()
            : new StickyAssignor().assign(cluster(before), group(newcomers, there)).groupAssignment();
        Map<String, ByteBuffer> bytes = new HashMap<>(newcomers);
        for (String member : there) {
            StickyAssignor own = new StickyAssignor();
            own.onAssignment(previous.get(member), new ConsumerGroupMetadata("group", 5, member, Optional.empty()));
            bytes.put(member, ConsumerProtocol.serializeSubscription(new Subscription(
                topicsOf.get(member), own.subscriptionUserData(Set.of()), List.of(), 5, Optional.empty())));
        }
        Cluster cluster = cluster(after);
        for (int run = -warmUps; run < runs; run++) {
            long started = THREADS.getCurrentThreadCpuTime();
            GroupSubscription group = group(bytes, then);
            long read = THREADS.getCurrentThreadCpuTime();
            Map<String, Assignment> answer = new StickyAssignor().assign(cluster, group).groupAssignment();
            long ended = THREADS.getCurrentThreadCpuTime();
            if (answer.size() != then.size()) throw new IllegalStateException("members are missing");
            if (run >= 0) System.out.println((ended - read) / 1e6 + " " + (ended - started) / 1e6);
        }
    }

    private static GroupSubscription group(Map<String, ByteBuffer> bytes, Set<String> members) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (String member : members)
            subscriptions.put(member, ConsumerProtocol.deserializeSubscription(bytes.get(member).duplicate()));
        return new GroupSubscription(subscriptions);
    }

    private static Cluster cluster(Map<String, Integer> topics) {
        Node node = new Node(0, "localhost", 9092);
        Node[] nodes = {node};
        List<PartitionInfo> partitions = new ArrayList<>();
        topics.forEach((topic, count) -> {
            for (int partition = 0; partition < count; partition++)
                partitions.add(new PartitionInfo(topic, partition, node, nodes, nodes));
        });
        return new Cluster("cluster", List.of(node), partitions, Set.of(), Set.of());
    }
}
