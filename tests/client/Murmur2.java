import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/** Each argument is a key in hex; prints the key, its murmur2 as Java's signed int, and its place of 1, 7 and 50. */
public class Murmur2 {
    public static void main(String[] keys) {
        for (String hex : keys) {
            byte[] key = HexFormat.of().parseHex(hex.equals("-") ? "" : hex);
            System.out.printf("[\"%s\", %d, %d, %d, %d]%n", hex.equals("-") ? "" : hex, Utils.murmur2(key),
                BuiltInPartitioner.partitionForKey(key, 1),
                BuiltInPartitioner.partitionForKey(key, 7),
                BuiltInPartitioner.partitionForKey(key, 50));
        }
    }
}
