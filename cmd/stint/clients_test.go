package main_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/pages"
)

// longestSnippet is how many lines one may have.
const longestSnippet = 35

// patiently makes snippets wait for answers for longer: a machine that tests is slow.
var patiently = strings.NewReplacer("(250)", "(20000)", " 250", " 20000", "0.25", "20")

// asTheyStand leaves them as a reader copies them.
var asTheyStand = strings.NewReplacer()

// snippets copies the files of docs/clients into a directory, with the rules of
// docs/CLIENTS.md.
func snippets(t *testing.T, change *strings.Replacer) (dir string) {
	t.Helper()
	dir = t.TempDir()
	page := pages.Read(t, "docs/CLIENTS.md")
	files, err := filepath.Glob(filepath.Join(root, "docs/clients/*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		body := pages.Read(t, "docs/clients/"+name)
		if n := strings.Count(body, "\n"); n > longestSnippet {
			t.Errorf("%s has %d lines, more than %d", name, n, longestSnippet)
		}
		if !strings.Contains(page, "(clients/"+name+")") {
			t.Errorf("docs/CLIENTS.md has no link to %s", name)
		}
		disk.Write(t, filepath.Join(dir, name), change.Replace(body))
	}
	disk.Write(t, filepath.Join(dir, "stint.yaml"), pages.Blocks(page, "yaml")[0])
	return dir
}

// asker prints what a check in Node answers for the requests for some paths, once its
// client is connected, or has had READY milliseconds for it, a second unless given.
const asker = `
const { check, client } = require("./SNIPPET");
(async () => {
	if (client?.on) await new Promise((done) => { client.on("ready", done); setTimeout(done, Number(process.env.READY ?? 1000)); });
	for (const path of process.env.PATHS.split(" ")) {
		const answer = await check({ path, ip: "192.0.2.7" });
		console.log(answer.status ?? answer.pass);
	}
	process.exit(0);
})();`

// A snippet is a file of docs/clients, and what it says.
type snippet struct {
	name, module string // module is what Node must find
	command      []string
	want, away   string
	asks         string // what of a question is in clear on the wire, behind what is said at the beginning
}

// A client runs a snippet.
type client struct {
	snippet
	*testing.T
	program, dir string
	server       *running
	redis        string // where that listens for its clients
	env          []string
}

// eachClient runs a test for each snippet of a directory, beside a server with the rules of
// the page.
func eachClient(t *testing.T, dir string, flags []string, test func(*client)) {
	need.Time(t)
	for _, c := range clients() {
		t.Run(c.name, func(t *testing.T) {
			if compiler := map[string]string{".java": "javac", ".cs": "mcs"}[filepath.Ext(c.name)]; compiler != "" {
				need.Program(t, compiler)
			}
			c := &client{snippet: c, T: t, dir: dir, program: wanted(t, c.command[0], c.module)}
			c.server = startServe(t, append([]string{filepath.Join(dir, "stint.yaml"), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0"}, flags...)...)
			grpc := c.server.at("interface=grpc")
			c.redis = c.server.at("interface=resp")
			c.env = append(os.Environ(), "NODE_PATH="+nodeModules(t), "STINT_URL="+c.server.front, "STINT_GRPC="+grpc, "STINT_REDIS_URL=redis://"+c.redis)
			test(c)
		})
	}
}

// says compares what a program of the snippet prints that asks for some paths. That there
// is no answer is told once, to stderr.
func (c *client) says(want, paths string, args []string, env ...string) {
	c.Helper()
	ctx, stop := context.WithTimeout(c.Context(), patience)
	defer stop()
	run := exec.CommandContext(ctx, c.program, args...)
	run.Dir, run.Env = c.dir, append(append(c.env, env...), "PATHS="+paths)
	var told strings.Builder
	run.Stderr = &told
	out, err := run.Output()
	said := strings.Join(strings.Fields(string(out)), " ")
	if n := strings.Count(told.String(), "no answer from stint"); err != nil || said != want || n > 1 || told.Len() > 0 && n == 0 {
		c.Errorf("%v: said %s, want %s, and told: %s", err, said, want, &told)
	}
}

// inJava is a command that compiles a class of Java with what it does, and runs it.
func inJava(name, does string) string {
	const program = "cat >NAME.java <<'EOF'\nimport java.util.*;\npublic class NAME { public static void main(String[] args) {\n%s\n} }\nEOF\njavac NAME.java && java NAME"
	return strings.ReplaceAll(fmt.Sprintf(program, does), "NAME", name)
}

// inDotNet is a command that compiles what C# does with Mono, and runs it.
func inDotNet(does string) string {
	const program = `cat >Does.cs <<'EOF'
using System; using System.Collections.Generic;
public static class Does { public static void Main() {
%s
} static int Check(Dictionary<string, string> question, long cost = 1) => Stint.CheckAsync(question, cost).Result.Status; }
EOF
mcs -out:does.exe -r:System.Net.Http.dll Does.cs Stint.cs && mono does.exe`
	return fmt.Sprintf(program, does)
}

func clients() []snippet {
	node := func(snippet string) []string {
		return []string{"node", "-e", strings.ReplaceAll(asker, "SNIPPET", snippet)}
	}
	python := []string{"python3", "-c", `import check, os
for path in os.environ["PATHS"].split(): print(check.check({"path": path, "ip": "192.0.2.7"})[0])`}
	shell := []string{"bash", "-c", `. ./check.sh; for path in $PATHS; do check 192.0.2.7 && echo pass || echo deny; done`}
	php := []string{"php", "-r", `require "./check.php"; foreach (explode(" ", getenv("PATHS")) as $path) echo stint_check(["path" => $path, "ip" => "192.0.2.7"])[0], "\n";`}
	ruby := []string{"ruby", "-e", `require "./check"; ENV["PATHS"].split.each { |path| puts Stint.check({ path: path, ip: "192.0.2.7" })[0] }`}
	java := []string{"bash", "-c", inJava("Asks", `for (var path : System.getenv("PATHS").split(" ")) System.out.println(Stint.check(Map.of("path", path, "ip", "192.0.2.7"), 1).status());`)}
	dotNet := []string{"bash", "-c", inDotNet(`foreach (var path in Environment.GetEnvironmentVariable("PATHS").Split(' ')) Console.WriteLine(Check(new Dictionary<string, string> { ["path"] = path, ["ip"] = "192.0.2.7" }));`)}
	return []snippet{
		{"check.js", "", node("check.js"), "200 200 429 400", "200", ""},
		{"check-redis.js", "redis", node("check-redis.js"), "true true false false", "true", "STINT.CHECK"},
		{"check-ioredis.js", "ioredis", node("check-ioredis.js"), "true true false false", "true", "STINT.CHECK"},
		{"check-grpc.js", "@grpc/grpc-js", node("check-grpc.js"), "true true false false", "true", ""},
		{"check.py", "", python, "200 200 429 400", "200", ""},
		{"check.php", "", php, "200 200 429 400", "200", ""},
		{"check.rb", "", ruby, "200 200 429 400", "200", ""},
		{"Stint.java", "", java, "200 200 429 400", "200", ""},
		{"Stint.cs", "", dotNet, "200 200 429 400", "200", ""},
		{"check.sh", "", shell, "pass pass deny deny", "pass", ""}, // it asks for one path
	}
}

// TestClientsSilent runs the snippets, as they stand, against a server that takes
// a question and never answers: each lets the request pass, and does not wait on.
func TestClientsSilent(t *testing.T) {
	eachClient(t, snippets(t, asTheyStand), nil, func(c *client) {
		at := silent(c.T, c.redis, c.asks)
		c.says(c.away+" "+c.away+" "+c.away, "/api /api /api", c.command[1:], "STINT_URL=http://"+at, "STINT_GRPC="+at, "STINT_REDIS_URL=redis://"+at) // the third is denied by a server that answers
	})
}

// silent listens, and passes on to a server what clients say until one asks; from
// then on that one hears nothing.
func silent(t *testing.T, server, asks string) (address string) {
	return accept(t, func(from net.Conn) { muted(from, server, asks) })
}

// muted passes on what a connection says to a server, and what that answers, until
// it asks; then it reads on, until the connection ends.
func muted(from net.Conn, server, asks string) {
	defer from.Close()
	to, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer to.Close()
	back := make(chan struct{})
	go func() { defer close(back); _, _ = io.Copy(from, to) }()
	defer func() { to.Close(); <-back }()
	piece := make([]byte, 1<<16)
	for asked := false; ; {
		n, err := from.Read(piece)
		if err != nil {
			return
		}
		if asked = asked || bytes.Contains(piece[:n], []byte(asks)); !asked {
			_, _ = to.Write(piece[:n])
		}
	}
}

// odd asks, when the limit of an address is used up, with all that a client of the program
// can choose, each time beside another request, and prints what passes.
const odd = `
const { check, client } = require("./SNIPPET");
const passes = ({ status, pass }) => pass === true || status === 200;
const ip = "192.0.2.7", path = "/api";
const nested = JSON.parse("[".repeat(20000) + "]".repeat(20000));
const values = ["\ud800", "\udc00x", "\0", "\r\n", "COST", " x ", "", "\ufffe", "x".repeat(9e3), "x".repeat(7e4), "\u20ac".repeat(3e4),
	"x".repeat(1e6), "x".repeat(2e7), ["a"], ["a", "ip", "192.0.2.8"], { a: "b" }, nested, 7, 1e400, true, null];
const many = Object.fromEntries(Array.from({ length: 9000 }, (_, i) => ["header.x" + i, "y"]));
(async () => {
	if (client?.on) await new Promise((done) => client.on("ready", done));
	for (let i = 0; i < 2; i++) if (!passes(await check({ path, ip }))) console.log("denied at", i);
	const questions = [...values.flatMap((user) => [{ path, ip, user }, { user, path, ip }]), { path, ip, ...many }, { path, ip, ["\ud800"]: "x" }];
	for (const [i, question] of questions.entries())
		for (const answer of await Promise.all([check({ path, ip }), check(question), check({ path, ip })]))
			if (passes(answer)) console.log("question", i, "passes");
	for (const cost of [NaN, Infinity, -1, 2 ** 32, 2 ** 32 + 1, 2 ** 53, 2 ** 64 + 1, 1e21, 1.5, "1", "1x", null, [1], {}, 10n])
		if (passes(await check({ path, ip: "192.0.2.9" }, cost))) console.log("cost", String(cost), "passes");
	if (passes(await check({ path, ip, user: undefined }))) console.log("undefined passes");
	console.log("end");
	process.exit(0);
})();`

// oddInPython is that, as far as it is not the same there.
const oddInPython = `
import check
ip, path = "192.0.2.7", "/api"
for i in range(2):
    if check.check({"path": path, "ip": ip})[0] != 200: print("denied at", i)
nested = []
for i in range(20000): nested = [nested]
for i, user in enumerate(["\ud800", "\0", "\r\n", " x ", "x" * 70000, "x" * 10**6, "x" * 2 * 10**7, ["a"], {}, nested, 7, float("nan"), None, b"x"]):
    if check.check({"path": path, "ip": ip, "user": user})[0] == 200: print("question", i, "passes")
for cost in [float("nan"), float("inf"), -1, 2**32 + 1, 2**63, 10**400, 1.5, "1", None]:
    if check.check({"path": path, "ip": "192.0.2.9"}, cost)[0] == 200: print("cost", cost, "passes")
if check.check({"path": path, "ip": ip, **{"x%d" % i: "y" * 1000 for i in range(9000)}})[0] == 200: print("many pass")
print("end")`

const oddInPHP = `require "./check.php"; $ip = "192.0.2.7"; $path = "/api"; $nested = [];
for ($i = 0; $i < 2; $i++) if (stint_check(["path" => $path, "ip" => $ip])[0] !== 200) echo "denied at $i\n";
for ($i = 0; $i < 20000; $i++) $nested = [$nested];
foreach (["\xff", "\0", "\r\n", " x ", str_repeat("x", 70000), str_repeat("x", 20000000), ["a"], $nested, 7, NAN, true, null] as $i => $user)
	if (stint_check(["path" => $path, "ip" => $ip, "user" => $user])[0] === 200) echo "question $i passes\n";
foreach ([NAN, INF, -1, PHP_INT_MAX, 1e400, 1.5, "1", null, [1]] as $i => $cost)
	if (stint_check(["path" => $path, "ip" => "192.0.2.9"], $cost)[0] === 200) echo "cost $i passes\n";
$many = ["path" => $path, "ip" => $ip, "\xff" => "x"];
if (stint_check($many)[0] === 200) echo "a name passes\n";
for ($i = 0; $i < 9000; $i++) $many["x$i"] = str_repeat("y", 1000);
if (stint_check($many)[0] === 200) echo "many pass\n";
echo "end";`

const oddInRuby = `require "./check"; ip = "192.0.2.7"; path = "/api"; nested = []
2.times { |i| puts "denied at #{i}" if Stint.check({ path: path, ip: ip })[0] != 200 }
20_000.times { nested = [nested] }
["\xff", "\0", "\r\n", " x ", "x" * 70_000, "x" * 20_000_000, "a\xff".b, "\u20ac".encode("UTF-16LE"), ["a"], nested, 7, Float::NAN, true, nil, {}].each_with_index do |user, i|
  puts "question #{i} passes" if Stint.check({ path: path, ip: ip, user: user })[0] == 200
end
[Float::NAN, -1, 2**63, 10**400, 1.5, "1", nil].each { |cost| puts "cost #{cost} passes" if Stint.check({ path: path, ip: "192.0.2.9" }, cost)[0] == 200 }
many = { path: path, ip: ip, "\xff" => "x" }
puts "a name passes" if Stint.check(many)[0] == 200
9000.times { |i| many["x#{i}"] = "y" * 1000 }
puts "many pass" if Stint.check(many)[0] == 200
puts "end"`

const oddInJava = `
var ip = "192.0.2.7"; var path = "/api";
for (int i = 0; i < 2; i++) if (Stint.check(Map.of("path", path, "ip", ip), 1).status() != 200) System.out.println("denied at " + i);
for (var user : Arrays.asList("\ud800", "\udc00x", "\0", "\r\n", "\"}", "\\", "\u20ac".repeat(8000), " x ", "x".repeat(70_000), "x".repeat(20_000_000), null)) {
	var question = new HashMap<>(Map.of("path", path, "ip", ip)); question.put("user", user);
	if (Stint.check(question, 1).status() == 200) System.out.println("user " + user + " passes");
}
for (long cost : new long[]{-1, 1L << 32, 1L << 53, Long.MAX_VALUE, Long.MIN_VALUE})
	if (Stint.check(Map.of("path", path, "ip", "192.0.2.9"), cost).status() == 200) System.out.println("cost " + cost + " passes");
var many = new HashMap<>(Map.of("path", path, "ip", ip)); many.put(null, "x");
if (Stint.check(many, 1).status() == 200) System.out.println("no name passes");
many.remove(null); many.put("\ud800", "x");
if (Stint.check(many, 1).status() == 200) System.out.println("a name passes");
for (int i = 0; i < 9000; i++) many.put("x" + i, "y".repeat(1000));
if (Stint.check(many, 1).status() == 200) System.out.println("many pass");
System.out.println("end");`

const oddInDotNet = `
Func<string, string, Dictionary<string, string>> Ask = (name, value) => new Dictionary<string, string> { ["path"] = "/api", ["ip"] = "192.0.2.7", [name] = value };
for (int i = 0; i < 2; i++) if (Check(Ask("user", "x")) != 200) Console.WriteLine("denied at " + i);
foreach (var user in new[] { "\ud800", "\udc00x", "\0", "\r\n", "\"}", "\\", new string('\u20ac', 8000), " x ", new string('x', 70000), new string('x', 20000000), null })
	if (Check(Ask("user", user)) == 200) Console.WriteLine("user " + user + " passes");
foreach (var cost in new[] { -1, 1L << 32, 1L << 53, long.MaxValue, long.MinValue })
	if (Check(new Dictionary<string, string> { ["path"] = "/api", ["ip"] = "192.0.2.9" }, cost) == 200) Console.WriteLine("cost " + cost + " passes");
var many = Ask("\ud800", "x");
if (Check(many) == 200) Console.WriteLine("a name passes");
for (int i = 0; i < 9000; i++) many["x" + i] = new string('y', 1000);
if (Check(many) == 200) Console.WriteLine("many pass");
Console.WriteLine("end");`

const oddInShell = `. ./check.sh
check 192.0.2.7 && check 192.0.2.7 || echo denied
for ip in 192.0.2.7 '"' '\' '1","ip":"192.0.2.8' '@/dev/null' $'\xff' $'192.0.2.9\n' "$(printf %070000d 0)" "$(printf %0200000d 0)"; do
	check "$ip" && echo "${ip:0:20} passes"
done
echo end`

// TestClientsOdd has a client of the program send what stint does not read: that is denied,
// and so are others.
func TestClientsOdd(t *testing.T) {
	programs := map[string]string{"check.py": oddInPython, "check.sh": oddInShell, "check.php": oddInPHP, "check.rb": oddInRuby, "Stint.java": inJava("Odd", oddInJava), "Stint.cs": inDotNet(oddInDotNet)}
	eachClient(t, snippets(t, patiently), nil, func(c *client) {
		program := cmp.Or(programs[c.name], strings.ReplaceAll(odd, "SNIPPET", c.name))
		c.says("end", "", []string{c.command[1], program}, "http_proxy=http://127.0.0.1:9")
	})
}

// unknown asks about a path of no rule until the answer is not that it may pass.
const unknown = `
const { check } = require("./SNIPPET");
(async () => {
	for (let i = 0; i < 400; i++) {
		const { status, pass } = await check({ path: "/other", ip: "192.0.2.7" });
		if (pass !== true) { console.log(status ?? pass); break; }
		await new Promise((done) => setTimeout(done, 50));
	}
	process.exit(0);
})();`

// TestClientsToken runs the snippets against a server that wants a token, and shows
// none: that is no outage, so nothing passes.
func TestClientsToken(t *testing.T) {
	const token = "0123456789-token-of-a-caller"
	dir := snippets(t, patiently)
	wants := map[string]string{"check.js": "401", "check.py": "401", "check.php": "401", "check.rb": "401", "Stint.java": "401", "Stint.cs": "401", "check.sh": "deny"}
	eachClient(t, dir, []string{"--token-file", disk.Write(t, dir+"/tokens", token+"\n")}, func(c *client) {
		command := c.command[1:]
		if c.command[0] == "node" {
			command = []string{"-e", strings.ReplaceAll(unknown, "SNIPPET", c.name)}
		}
		c.says(cmp.Or(wants[c.name], "false"), "/other", command)
		if strings.HasSuffix(c.module, "redis") {
			c.says("true true false", "/api /api /api", c.command[1:], "STINT_REDIS_URL=redis://:"+token+"@"+c.redis, "READY=20000")
		}
	})
}

// TestClientsGarbage has something else answer over HTTP: it is no answer.
func TestClientsGarbage(t *testing.T) {
	eachClient(t, snippets(t, patiently), nil, func(c *client) {
		if c.away != "200" {
			return
		}
		for _, answer := range []string{
			"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"allowed\"", // cut off
			"SSH-2.0-OpenSSH_9.2\r\n",
			"",
		} {
			at := accept(c.T, func(conn net.Conn) {
				defer conn.Close()
				_, _ = http.ReadRequest(bufio.NewReader(conn))
				_, _ = io.WriteString(conn, answer)
			})
			c.says(c.away, "/api", c.command[1:], "STINT_URL=http://"+at)
		}
	})
}

// TestClientsVersions looks that the page has readers install the versions that
// the tests install.
func TestClientsVersions(t *testing.T) {
	needs := pages.Read(t, ".ci/needs")
	installs := regexp.MustCompile("`npm install ([^`]+)`").FindAllStringSubmatch(pages.Read(t, "docs/CLIENTS.md"), -1)
	for _, m := range installs {
		for _, pack := range strings.Fields(m[1]) {
			if !strings.Contains(needs, " "+pack+".") && !strings.Contains(needs, "("+pack+".") {
				t.Errorf("%s: the tests install another version", pack)
			}
		}
	}
	if len(installs) < 4 {
		t.Errorf("%d lines of npm install", len(installs))
	}
}

// TestClients runs the files of docs/clients: what passes, what is denied,
// what is wrong, and what happens when the server does not answer.
func TestClients(t *testing.T) {
	eachClient(t, snippets(t, patiently), nil, func(c *client) {
		c.says(c.want, "/api /api /api /a%2fb", c.command[1:], "READY=20000")
		c.server.stop("")
		c.says(c.away, "/api", c.command[1:])
	})
}

// nodeModules is where "make needs" puts packages of npm.
func nodeModules(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(root, "bin/node/node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// wanted returns the path of a program, or skips the test.
func wanted(t *testing.T, name, module string) string {
	t.Helper()
	if module != "" {
		need.Package(t, root, module)
	}
	return need.Program(t, name)
}

// runExpress runs a server of Express, which prints its port, until the test ends.
func runExpress(t *testing.T, dir, script string, env ...string) (port int) {
	t.Helper()
	ctx, quit := context.WithCancel(context.Background())
	app := exec.CommandContext(ctx, wanted(t, "node", "express"), script)
	app.Dir = dir
	app.Env = append(append(os.Environ(), "NODE_PATH="+nodeModules(t), "PORT=0"), env...)
	out, err := app.StdoutPipe()
	if err == nil {
		err = app.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { quit(); _ = app.Wait() })
	if _, err := fmt.Fscan(out, &port); err != nil {
		t.Fatal(err)
	}
	return port
}

// TestExpress runs the app of docs/clients and asks it.
func TestExpress(t *testing.T) {
	dir := snippets(t, patiently)
	s := startServe(t, filepath.Join(dir, "stint.yaml"), "--http", "127.0.0.1:0")
	port := runExpress(t, dir, "app.js", "STINT_URL="+s.front)
	for i, try := range []struct {
		path string
		want int
	}{{"/api?q=1", 200}, {"/API", 200}, {"/Api", 429}, {"/a%2fb", 400}, {"/x/../other", 400}, {"//other", 400}, {"/other/.", 400}, {"/%6fther", 400}, {"/other/?x=//", 404}, {"/other", 404}, {"", 0}, {"/api", 200}} {
		if try.path == "" {
			s.stop("") // stint is away from here on
			continue
		}
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, try.path))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != try.want || (resp.Header.Get("Retry-After") != "") != (try.want == 429) || (resp.Header.Get("RateLimit") != "") != (i < 3) {
			t.Errorf("request %d, %s: %d %v, want %d", i, try.path, resp.StatusCode, resp.Header, try.want)
		}
	}
}
