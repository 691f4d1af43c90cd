// Runs Apache Kafka's command line tools one after the other in one JVM, since starting one for each takes a second.
//
// In: a line for each run, the main class and its arguments with tabs between them. Out: a line with the exit status
// and the number of bytes the tool wrote, to stdout and stderr together, then those bytes.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Arrays;
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
