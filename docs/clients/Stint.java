import java.net.URI;
import java.net.http.*;
import java.util.*;
import java.util.concurrent.TimeUnit;
import static java.util.stream.Collectors.*;

public class Stint {
	public record Answer(int status, long delay, Map<String, List<String>> fields) {}

	static final URI CHECK = URI.create(Optional.ofNullable(System.getenv("STINT_URL")).orElse("http://127.0.0.1:8080") + "/v1/check");
	static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).proxy(HttpClient.Builder.NO_PROXY).build();
	static final long MILLIS = 250, MINUTE = TimeUnit.MINUTES.toNanos(1);
	static long told = System.nanoTime() - MINUTE;

	/** Asks whether a request may pass: its status, the milliseconds to wait first, and the fields to send on. */
	public static Answer check(Map<String, String> attributes, long cost) {
		var unfit = attributes.entrySet().stream().anyMatch(e -> e.getKey() == null || e.getValue() == null || e.getValue().length() > 8192);
		if (unfit || cost < 0) return new Answer(400, 0, Map.of()); // stint would not read it
		var texts = attributes.entrySet().stream().map(e -> text(e.getKey()) + ":" + text(e.getValue())).collect(joining(","));
		var body = HttpRequest.BodyPublishers.ofString("{\"attributes\":{" + texts + "},\"cost\":" + cost + "}");
		var sent = HTTP.sendAsync(HttpRequest.newBuilder(CHECK).header("Content-Type", "application/json").POST(body).build(), HttpResponse.BodyHandlers.ofString());
		try {
			var answer = sent.get(MILLIS, TimeUnit.MILLISECONDS);
			if (!answer.body().startsWith("{")) throw new java.io.IOException("an answer that is not of stint");
			var delay = new Scanner(answer.body()).findInLine("(?<=\"delay_ms\":)\\d+");
			var fields = answer.headers().map().entrySet().stream().filter(e -> e.getKey().matches("(?i)(x-)?ratelimit.*|retry-after"));
			return new Answer(answer.statusCode(), delay == null ? 0 : Long.parseLong(delay), fields.collect(toMap(Map.Entry::getKey, Map.Entry::getValue)));
		} catch (Exception error) { sent.cancel(true); tell(error); return new Answer(200, 0, Map.of()); } // no answer: let it pass
	}
	static synchronized void tell(Exception error) {
		if (System.nanoTime() - told >= MINUTE) { told = System.nanoTime(); System.err.println("no answer from stint, so requests pass: " + error); }
	}
	static String text(String s) { return s.chars().mapToObj(c -> c < ' ' || c > '~' || c == '"' || c == '\\' ? String.format("\\u%04x", c) : "" + (char) c).collect(joining("", "\"", "\"")); }
}
