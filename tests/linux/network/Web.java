import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Executors;

/** Answers each request by its method, its path and how long its body was: `Web PORT`. */
public final class Web {
    public static void main(String[] words) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(Integer.parseInt(words[0])), 50);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            int size = exchange.getRequestBody().readAllBytes().length;
            String text = exchange.getRequestMethod() + " " + exchange.getRequestURI() + " " + size + "\n";
            byte[] answer = text.getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.start();
    }
}
