import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileReader;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Asks Kafka's own classes for bytes. Each line of the file named holds a message class, a version and its fields as
 * JSON; each line printed is the same with the bytes Kafka writes, in hex. Run by record_versions.py.
 */
public class KafkaBytes {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        try (BufferedReader lines = new BufferedReader(new FileReader(arguments[0]))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                ObjectNode vector = (ObjectNode) mapper.readTree(line);
                short version = (short) vector.get("version").asInt();
                Message message = (Message) Class.forName(vector.get("class").asText() + "JsonConverter")
                    .getMethod("read", JsonNode.class, short.class)
                    .invoke(null, vector.get("fields"), version);
                vector.put("hex", HexFormat.of().formatHex(MessageUtil.toVersionPrefixedBytes(version, message)));
                System.out.println(mapper.writeValueAsString(vector));
            }
        }
    }
}
