using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Net.Http;
using System.Text;
using System.Text.RegularExpressions;
using System.Threading.Tasks;

public static class Stint {
	static readonly string Url = (Environment.GetEnvironmentVariable("STINT_URL") ?? "http://127.0.0.1:8080") + "/v1/check";
	static readonly HttpClient Http = new HttpClient(new HttpClientHandler { UseProxy = false, AllowAutoRedirect = false }) { Timeout = TimeSpan.FromMilliseconds(250) };
	static readonly Dictionary<string, string[]> None = new Dictionary<string, string[]>();
	static readonly Stopwatch Told = new Stopwatch();

	/// <summary>Asks whether a request may pass: its status, how long to wait first, and the fields to send on.</summary>
	public static async Task<(int Status, TimeSpan Delay, Dictionary<string, string[]> Fields)> CheckAsync(IDictionary<string, string> attributes, long cost = 1) {
		if (cost < 0 || attributes.Any(a => a.Value == null || a.Value.Length > 8192)) return (400, TimeSpan.Zero, None); // stint would not read it
		var body = "{\"attributes\":{" + string.Join(",", attributes.Select(a => Text(a.Key) + ":" + Text(a.Value))) + "},\"cost\":" + cost + "}";
		try {
			using (var answer = await Http.PostAsync(Url, new StringContent(body, Encoding.UTF8, "application/json")).ConfigureAwait(false)) {
				var text = await answer.Content.ReadAsStringAsync().ConfigureAwait(false);
				if (!text.StartsWith("{", StringComparison.Ordinal)) throw new HttpRequestException("an answer that is not of stint");
				var delay = Regex.Match(text, "\"delay_ms\":([0-9]+)").Groups[1].Value;
				var fields = answer.Headers.Where(f => Regex.IsMatch(f.Key, "^((x-)?ratelimit|retry-after)", RegexOptions.IgnoreCase | RegexOptions.CultureInvariant));
				return ((int)answer.StatusCode, TimeSpan.FromMilliseconds(delay == "" ? 0 : double.Parse(delay)), fields.ToDictionary(f => f.Key, f => f.Value.ToArray()));
			}
		} catch (Exception error) { Tell(error); return (200, TimeSpan.Zero, None); } // no answer: let it pass
	}
	static void Tell(Exception error) {
		lock (Told) { if (Told.IsRunning && Told.Elapsed.TotalSeconds < 60) return; Told.Restart(); }
		Console.Error.WriteLine("no answer from stint, so requests pass: " + error.Message);
	}
	static string Text(string s) => "\"" + string.Concat(s.Select(c => c < ' ' || c > '~' || c == '"' || c == '\\' ? "\\u" + ((int)c).ToString("x4") : c.ToString())) + "\"";
}
