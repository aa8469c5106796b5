import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's tools one after the other in one JVM, which saves the start of one for each.
 *
 * <p>A line of standard input is a call: {@code {"main": CLASS, "arguments": [...], "stdin": TEXT}}. A line of
 * standard output is what became of it: {@code {"status": N, "out": TEXT, "err": TEXT}}. Tools leave by Kafka's
 * own {@link Exit}, which here ends the call and not the JVM; their shutdown hooks run when the call ends.
 */
public final class ToolHost {
    private static final class Left extends Error {
        private static final long serialVersionUID = 1L;
        private final int status;

        private Left(int status) {
            super("left with status " + status, null, false, false);
            this.status = status;
        }
    }

    /** What a tool prints goes to the current call's buffer; Scala's Console holds on to the first stream. */
    private static final class Redirected extends OutputStream {
        private volatile ByteArrayOutputStream buffer = new ByteArrayOutputStream();

        @Override
        public void write(int each) {
            buffer.write(each);
        }

        @Override
        public void write(byte[] bytes, int from, int count) {
            buffer.write(bytes, from, count);
        }

        private String taken() {
            ByteArrayOutputStream full = buffer;
            buffer = new ByteArrayOutputStream();
            return full.toString(StandardCharsets.UTF_8);
        }
    }

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Redirected OUT = new Redirected();
    private static final Redirected ERR = new Redirected();
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static volatile Integer status;

    public static void main(String[] none) throws IOException {
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream replies = System.out;
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((wanted, message) -> leave(wanted));
        Exit.setHaltProcedure((wanted, message) -> leave(wanted));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            JsonNode call = JSON.readTree(line);
            List<String> arguments = new ArrayList<>();
            call.get("arguments").forEach(each -> arguments.add(each.asText()));
            System.setIn(new ByteArrayInputStream(call.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
            int result = run(call.get("main").asText(), arguments.toArray(String[]::new));
            replies.println(JSON.writeValueAsString(Map.of("status", result, "out", OUT.taken(), "err", ERR.taken())));
            replies.flush();
        }
        Runtime.getRuntime().halt(0); // whatever threads the tools have left
    }

    private static int run(String main, String[] arguments) {
        status = null;
        HOOKS.clear();
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
            HOOKS.forEach(Runnable::run);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Left)) {
                error.getCause().printStackTrace();
                return 1;
            }
            HOOKS.forEach(Runnable::run);
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            return 1;
        }
        return status == null ? 0 : status;
    }

    /** The first status counts: a tool may catch what is thrown here, and leave once more. */
    private static void leave(int wanted) {
        if (status == null) {
            status = wanted;
        }
        throw new Left(status);
    }
}
