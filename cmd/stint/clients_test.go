package main_test

import (
	"bufio"
	"bytes"
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
	"sync"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/need"
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
	files, err := filepath.Glob(filepath.Join(root, "docs/clients/*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		if n := bytes.Count(body, []byte("\n")); n > longestSnippet {
			t.Errorf("%s has %d lines, more than %d", name, n, longestSnippet)
		}
		if !strings.Contains(clientsPage(t), "(clients/"+name+")") {
			t.Errorf("docs/CLIENTS.md has no link to %s", name)
		}
		writeFile(t, filepath.Join(dir, name), change.Replace(string(body)))
	}
	_, rules, _ := strings.Cut(clientsPage(t), "\n```yaml\n")
	rules, _, _ = strings.Cut(rules, "```")
	writeFile(t, filepath.Join(dir, "stint.yaml"), rules)
	return dir
}

func clientsPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/CLIENTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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

// A client is a snippet, and what it says.
type client struct {
	name, module string // module is what Node must find
	command      []string
	want, away   string
	asks         string // what of a question is in clear on the wire, behind what is said at the beginning
}

func clients() []client {
	node := func(snippet string) []string {
		return []string{"node", "-e", strings.ReplaceAll(asker, "SNIPPET", snippet)}
	}
	python := []string{"python3", "-c", `import check, os
for path in os.environ["PATHS"].split(): print(check.check({"path": path, "ip": "192.0.2.7"})[0])`}
	shell := []string{"bash", "-c", `. ./check.sh; for path in $PATHS; do check 192.0.2.7 && echo pass || echo deny; done`}
	php := []string{"php", "-r", `require "./check.php"; foreach (explode(" ", getenv("PATHS")) as $path) echo stint_check(["path" => $path, "ip" => "192.0.2.7"])[0], "\n";`}
	ruby := []string{"ruby", "-e", `require "./check"; ENV["PATHS"].split.each { |path| puts Stint.check({ path: path, ip: "192.0.2.7" })[0] }`}
	return []client{
		{"check.js", "", node("check.js"), "200 200 429 400", "200", ""},
		{"check-redis.js", "redis", node("check-redis.js"), "true true false false", "true", "STINT.CHECK"},
		{"check-ioredis.js", "ioredis", node("check-ioredis.js"), "true true false false", "true", "STINT.CHECK"},
		{"check-grpc.js", "@grpc/grpc-js", node("check-grpc.js"), "true true false false", "true", ""},
		{"check.py", "", python, "200 200 429 400", "200", ""},
		{"check.php", "", php, "200 200 429 400", "200", ""},
		{"check.rb", "", ruby, "200 200 429 400", "200", ""},
		{"check.sh", "", shell, "pass pass deny deny", "pass", ""}, // it asks for one path
	}
}

// runClient returns what a program that asks for some paths prints. That there is no answer
// is told once, to stderr.
func runClient(t *testing.T, program string, args []string, dir string, env []string, paths string) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	c := exec.CommandContext(ctx, program, args...)
	c.Dir, c.Env = dir, append(env, "PATHS="+paths)
	var told bytes.Buffer
	c.Stderr = &told
	out, err := c.Output()
	if err != nil {
		t.Errorf("%v: %s%s", err, out, told.String())
	}
	said := strings.Join(strings.Fields(string(out)), " ")
	if n := strings.Count(told.String(), "no answer from stint"); n > 1 || told.Len() > 0 && n == 0 {
		t.Errorf("said %s, and told: %s", said, told.String())
	}
	return said
}

// TestClientsSilent runs the snippets, as they stand, against a server that takes
// a question and never answers: each lets the request pass, and does not wait on.
func TestClientsSilent(t *testing.T) {
	need.Time(t)
	dir := snippets(t, asTheyStand)
	for _, try := range clients() {
		t.Run(try.name, func(t *testing.T) {
			program := wanted(t, try.command[0], try.module)
			r := freeport.Addr(t)
			defer serveSnippets(t, dir, "--http", freeport.Addr(t), "--resp", r)()
			at := silent(t, r, try.asks)
			env := append(os.Environ(), "NODE_PATH="+nodeModules(t), "STINT_URL=http://"+at, "STINT_GRPC="+at, "STINT_REDIS_URL=redis://"+at)
			if got := runClient(t, program, try.command[1:], dir, env, "/api /api /api"); got != try.away+" "+try.away+" "+try.away { // the third is denied by a server that answers
				t.Errorf("said %s", got)
			}
		})
	}
}

// silent listens, and passes on to a server what clients say until one asks; from
// then on that one hears nothing.
func silent(t *testing.T, server, asks string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	t.Cleanup(func() { l.Close(); open.Wait() })
	open.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { muted(from, server, asks) })
		}
	})
	return l.Addr().String()
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

const oddInShell = `. ./check.sh
check 192.0.2.7 && check 192.0.2.7 || echo denied
for ip in 192.0.2.7 '"' '\' '1","ip":"192.0.2.8' '@/dev/null' $'\xff' $'192.0.2.9\n' "$(printf %070000d 0)" "$(printf %0200000d 0)"; do
	check "$ip" && echo "${ip:0:20} passes"
done
echo end`

// TestClientsOdd has a client of the program send what stint does not read: that is denied,
// and so are others.
func TestClientsOdd(t *testing.T) {
	need.Time(t)
	dir := snippets(t, patiently)
	for _, try := range clients() {
		t.Run(try.name, func(t *testing.T) {
			program := wanted(t, try.command[0], try.module)
			h, g, r := freeport.Addr(t), freeport.Addr(t), freeport.Addr(t)
			defer serveSnippets(t, dir, "--http", h, "--grpc", g, "--resp", r)()
			args := []string{try.command[1], strings.ReplaceAll(odd, "SNIPPET", try.name)}
			switch try.name {
			case "check.py":
				args[1] = oddInPython
			case "check.sh":
				args[1] = oddInShell
			case "check.php":
				args[1] = oddInPHP
			case "check.rb":
				args[1] = oddInRuby
			}
			env := append(os.Environ(), "NODE_PATH="+nodeModules(t), "STINT_URL=http://"+h, "STINT_GRPC="+g, "STINT_REDIS_URL=redis://"+r, "http_proxy=http://127.0.0.1:9")
			if got := runClient(t, program, args, dir, env, ""); got != "end" {
				t.Errorf("said %s", got)
			}
		})
	}
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
	need.Time(t)
	const token = "0123456789-token-of-a-caller"
	dir := snippets(t, patiently)
	tokens := writeFile(t, dir+"/tokens", token+"\n")
	wants := map[string]string{"check.js": "401", "check.py": "401", "check.php": "401", "check.rb": "401", "check.sh": "deny"}
	for _, try := range clients() {
		t.Run(try.name, func(t *testing.T) {
			program := wanted(t, try.command[0], try.module)
			h, g, r := freeport.Addr(t), freeport.Addr(t), freeport.Addr(t)
			defer serveSnippets(t, dir, "--http", h, "--grpc", g, "--resp", r, "--token-file", tokens)()
			command, want := try.command[1:], "false"
			if try.command[0] == "node" {
				command = []string{"-e", strings.ReplaceAll(unknown, "SNIPPET", try.name)}
			}
			if wants[try.name] != "" {
				want = wants[try.name]
			}
			env := append(os.Environ(), "NODE_PATH="+nodeModules(t), "STINT_URL=http://"+h, "STINT_GRPC="+g, "STINT_REDIS_URL=redis://"+r)
			if got := runClient(t, program, command, dir, env, "/other"); got != want {
				t.Errorf("without a token: said %s, want %s", got, want)
			}
			if strings.HasSuffix(try.module, "redis") {
				env = append(env, "STINT_REDIS_URL=redis://:"+token+"@"+r, "READY=20000")
				if got := runClient(t, program, try.command[1:], dir, env, "/api /api /api"); got != "true true false" {
					t.Errorf("with a token: said %s", got)
				}
			}
		})
	}
}

// TestClientsGarbage has something else answer over HTTP: it is no answer.
func TestClientsGarbage(t *testing.T) {
	need.Time(t)
	dir := snippets(t, patiently)
	for name, answer := range map[string]string{
		"a page":      "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
		"cut off":     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"allowed\"",
		"not of HTTP": "SSH-2.0-OpenSSH_9.2\r\n",
		"nothing":     "",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var answers sync.WaitGroup
		answers.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = http.ReadRequest(bufio.NewReader(c))
				_, _ = io.WriteString(c, answer)
				c.Close()
			}
		})
		for _, try := range clients() {
			if try.away != "200" {
				continue
			}
			t.Run(try.name+"/"+name, func(t *testing.T) {
				env := append(os.Environ(), "STINT_URL=http://"+l.Addr().String())
				if got := runClient(t, wanted(t, try.command[0], ""), try.command[1:], dir, env, "/api"); got != try.away {
					t.Errorf("said %s, want %s", got, try.away)
				}
			})
		}
		l.Close()
		answers.Wait()
	}
}

// TestClientsVersions looks that the page has readers install the versions that
// the tests install.
func TestClientsVersions(t *testing.T) {
	needs, err := os.ReadFile(filepath.Join(root, ".ci/needs"))
	if err != nil {
		t.Fatal(err)
	}
	installs := regexp.MustCompile("`npm install ([^`]+)`").FindAllStringSubmatch(clientsPage(t), -1)
	for _, m := range installs {
		for _, pack := range strings.Fields(m[1]) {
			if !bytes.Contains(needs, []byte(" "+pack+".")) && !bytes.Contains(needs, []byte("("+pack+".")) {
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
	need.Time(t)
	dir := snippets(t, patiently)
	for _, try := range clients() {
		t.Run(try.name, func(t *testing.T) {
			program := wanted(t, try.command[0], try.module)
			h, g, r := freeport.Addr(t), freeport.Addr(t), freeport.Addr(t)
			env := append(os.Environ(), "NODE_PATH="+nodeModules(t), "STINT_URL=http://"+h, "STINT_GRPC="+g, "STINT_REDIS_URL=redis://"+r)
			stop := serveSnippets(t, dir, "--http", h, "--grpc", g, "--resp", r)
			if got := runClient(t, program, try.command[1:], dir, append(env, "READY=20000"), "/api /api /api /a%2fb"); got != try.want {
				t.Errorf("said %s, want %s", got, try.want)
			}
			stop()
			if got := runClient(t, program, try.command[1:], dir, env, "/api"); got != try.away {
				t.Errorf("when stint is away: said %s, want %s", got, try.away)
			}
		})
	}
}

// serveSnippets serves the rules of the page until stop is called.
func serveSnippets(t *testing.T, dir string, flags ...string) (stop func()) {
	t.Helper()
	s := startServe(t, append([]string{filepath.Join(dir, "stint.yaml")}, flags...)...)
	return func() { s.stop("") }
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
	dir, address := snippets(t, patiently), freeport.Addr(t)
	stop := serveSnippets(t, dir, "--http", address)
	port := runExpress(t, dir, "app.js", "STINT_URL=http://"+address)
	for i, try := range []struct {
		path string
		want int
	}{{"/api?q=1", 200}, {"/API", 200}, {"/Api", 429}, {"/a%2fb", 400}, {"/x/../other", 400}, {"//other", 400}, {"/other/.", 400}, {"/%6fther", 400}, {"/other/?x=//", 404}, {"/other", 404}, {"", 0}, {"/api", 200}} {
		if try.path == "" {
			stop() // stint is away from here on
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
