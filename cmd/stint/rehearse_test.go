package main_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/service/rehearse"
)

const (
	looseRules = "rules: [{name: login, match: {path: /login}, key: [ip], limits: 5 per hour}]\n"
	tightRules = "rules: [{name: login, match: {path: /login}, key: [ip], limits: 2 per hour}]\n"
)

// rehearsal runs stint rehearse --json, and returns what it says.
func rehearsal(t *testing.T, args ...string) (report rehearse.Report, said string) {
	t.Helper()
	said = session{args: append([]string{"rehearse", "--json"}, args...)}.run()
	if err := json.NewDecoder(strings.NewReader(said)).Decode(&report); err != nil && !strings.HasPrefix(said, "stderr: ") {
		t.Fatalf("%v: %s", err, said)
	}
	return report, said
}

// TestKeptForOperators has a server keep nothing in clear that only --admin shows,
// unless it has an --admin.
func TestKeptForOperators(t *testing.T) {
	for _, admin := range []string{"", "127.0.0.1:0"} {
		keys, requests, err := main.KeptForOperators(admin)
		if err != nil || keys != (admin != "") || requests != keys {
			t.Errorf("--admin %q: keys %v, requests %v, %v", admin, keys, requests, err)
		}
	}
}

// TestRehearse sends requests in at three interfaces of a server, and tries a tighter
// rule on them.
func TestRehearse(t *testing.T) {
	dir := t.TempDir()
	loose, tight := disk.Write(t, dir+"/stint.yaml", looseRules), disk.Write(t, dir+"/new.yaml", tightRules)
	s := operated(t, "-c", loose, "--resp", "127.0.0.1:0", "--trusted-proxy", "127.0.0.0/8")
	resp := s.at("interface=resp")
	if _, said := rehearsal(t, tight, "--server", s.admin); !strings.Contains(said, "nothing is recorded yet") {
		t.Errorf("before any request: %s", said)
	}
	const login = `{"attributes":{"path":"/login","ip":"192.0.2.7"}}`
	for range 2 {
		s.ask("/v1/check", login, "")
		s.ask("/v1/reserve", login, "")
	}
	s.ask("/v1/peek", login, "") // which is no request
	for range 2 {
		if answer := s.auth("/login?a=b", "192.0.2.8"); answer.StatusCode != 200 {
			t.Fatal(answer)
		}
	}
	conn, err := net.Dial("tcp", resp)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		fmt.Fprint(conn, "STINT.CHECK path /login ip 192.0.2.7\r\n")
	}
	fmt.Fprint(conn, "QUIT\r\n")
	_, _ = io.ReadAll(conn)
	conn.Close()

	report, said := rehearsal(t, tight, "--server", s.admin, "--names")
	if report.Requests != 9 || report.RecordedDenied != 2 || report.Denied != (rehearse.Compare{Before: 2, After: 5}) || report.NewlyDenied != 3 ||
		len(report.Denials) != 1 || report.Denials[0].Key != "192.0.2.7" {
		t.Errorf("%s", said)
	}
	if _, said = rehearsal(t, tight, "--server", s.admin); strings.Contains(said, "192.0.2.7") || !strings.Contains(said, `"key_hash":"`) {
		t.Errorf("a key in clear: %s", said)
	}
	for share, refused := range map[string]bool{"33%": true, "34%": false, "0.1%": true, "0%": true} {
		if _, said := rehearsal(t, tight, "--server", s.admin, "--deny-at-most", share); strings.HasSuffix(said, "exit 1\n") != refused {
			t.Errorf("%s: %s", share, said)
		}
	}
	if _, said := rehearsal(t, loose, "--server", s.admin, "--deny-at-most", "0%"); strings.Contains(said, "exit") {
		t.Errorf("the rules in force: %s", said)
	}
	s.stop("")
}

// TestRehearseGate publishes rules into a database only if they newly deny few
// of the requests that a server recorded.
func TestRehearseGate(t *testing.T) {
	dir := t.TempDir()
	loose, tight := disk.Write(t, dir+"/stint.yaml", looseRules), disk.Write(t, dir+"/new.yaml", tightRules)
	db := "sqlite:" + dir + "/stint.db"
	push := func(args ...string) string {
		return session{args: append([]string{"rules", "push", "--rules", db}, args...)}.run()
	}
	if said := push(loose); strings.Contains(said, "exit") {
		t.Fatal(said)
	}
	s := operated(t, "--rules", db)
	made := session{args: []string{"token", "make", "ci", "--role", "viewer", "--rules", db}}.run()
	token := disk.Write(t, dir+"/token", regexp.MustCompile(`[A-Za-z0-9_-]{20,}`).FindString(made))
	for range 4 {
		s.ask("/v1/check", `{"attributes":{"path":"/login","ip":"192.0.2.7"}}`, "")
	}
	gate := []string{"--deny-at-most", "10%", "--rehearse-at", s.admin}
	if said := push(append([]string{tight}, gate...)...); !strings.Contains(said, "want a token") || !strings.Contains(said, "exit 1") {
		t.Errorf("without a token: %s", said)
	}
	gate = append(gate, "--rehearse-token-file", token)
	if said := push(append([]string{tight}, gate...)...); !strings.Contains(said, "refused: 50% of requests would be newly denied (2 of 4), more than 10%; nothing was published") || !strings.Contains(said, "exit 1") {
		t.Errorf("too tight: %s", said)
	}
	if said := push(tight, "--deny-at-most", "", "--rehearse-at", s.admin); !strings.Contains(said, "exit 2") {
		t.Errorf("an empty share: %s", said)
	}
	if _, said := rehearsal(t, tight, "--server", s.admin, "--token-file", token, "--names"); !strings.Contains(said, "keys in clear are for operators") {
		t.Errorf("a viewer sees names: %s", said)
	}
	if said := (session{args: []string{"rules", "log", "--rules", db}}).run(); strings.Count(said, "\n") != 1 {
		t.Errorf("published: %s", said)
	}
	more := disk.Write(t, dir+"/more.yaml", strings.Replace(looseRules, "5 per hour", "9 per hour", 1))
	if said := push(append([]string{more}, gate...)...); !strings.Contains(said, "revision 2 is in force") || !strings.Contains(said, "rehearsed on 4 requests: 0% would be newly denied") {
		t.Errorf("looser: %s", said)
	}
	other := disk.Write(t, dir+"/other.yaml", "rules: [{name: login, key: [header.x-key], limits: 5 per hour}]\n")
	if said := push(append([]string{other}, gate...)...); !strings.Contains(said, "header.x-key, which was not recorded") {
		t.Errorf("what was not recorded: %s", said)
	}
	if said := push(tight, "--deny-at-most", "10%"); !strings.Contains(said, "--rehearse-at") || !strings.Contains(said, "exit 2") {
		t.Errorf("nowhere to ask: %s", said)
	}
	s.signal(os.Interrupt)
}

// TestRehearseTokens asks a server that has files of tokens, or keeps nothing.
func TestRehearseTokens(t *testing.T) {
	dir := t.TempDir()
	loose := disk.Write(t, dir+"/stint.yaml", looseRules)
	operators := disk.Write(t, dir+"/operators", operatorToken+"\n")
	s := operated(t, "-c", loose, "--operator-token-file", operators)
	s.ask("/v1/check", `{"attributes":{"path":"/login","ip":"192.0.2.7"}}`, "")
	if _, said := rehearsal(t, loose, "--server", s.admin, "--names"); !strings.Contains(said, "keys in clear are for operators") {
		t.Errorf("names without a token: %s", said)
	}
	if report, said := rehearsal(t, loose, "--server", s.admin, "--names", "--token-file", operators); report.Requests != 1 {
		t.Error(said)
	}
	s.waitFor("rehearsal shows keys in clear")
	for _, bad := range []struct {
		body, want string
		status     int
	}{
		{`{`, "the body: ", 400}, {`{"document":"rules: []"} x`, "the body: ", 400}, {`{"documents":""}`, "unknown field", 400},
		{`{"document":"rules: 1"}`, "stint.yaml:1:", 422}, {`{"document":"rules: []","top":-1}`, "from 1 to", 422}, {`{"document":"rules: []","warm_up":"-1s"}`, "duration", 422},
	} {
		if status, said := s.call(http.MethodPost, s.admin+"/v1/rehearse", bad.body, nil); status != bad.status || !strings.Contains(said, bad.want) {
			t.Errorf("%s: %d %s", bad.body, status, said)
		}
	}
	s.stop("")
	s = operated(t, "-c", loose, "--record", "off")
	if _, said := rehearsal(t, loose, "--server", s.admin); !strings.Contains(said, "no such path") {
		t.Errorf("with --record off: %s", said)
	}
	s.stop("")
}

// TestRehearseLog tries rules on an access log, whose requests no server saw.
func TestRehearseLog(t *testing.T) {
	dir := t.TempDir()
	log := disk.Write(t, dir+"/access.log", strings.Repeat(`192.0.2.7 - - [05/Mar/2025:12:00:01 +0000] "POST /login HTTP/1.1" 200 5 "-" "curl"`+"\n", 4)+
		strings.Repeat(`192.0.2.8 - - [05/Mar/2025:11:59:59 +0000] "POST /login HTTP/1.1" 429 5 "-" "curl"`+"\n", 3)+"not a line\n")
	loose, tight := disk.Write(t, dir+"/stint.yaml", looseRules), disk.Write(t, dir+"/new.yaml", tightRules)
	report, said := rehearsal(t, tight, "--log", log, "--before", loose, "--warm-up", "0s")
	if report.Requests != 7 || report.RecordedDenied != 3 || report.NewlyDenied != 3 || report.Denied.Before != 0 || len(report.Denials) != 2 || report.Denials[0].Key != "192.0.2.7" {
		t.Error(said)
	}
	behind := disk.Write(t, dir+"/behind.log", strings.Repeat(`10.0.0.1 - - [05/Mar/2025:12:00:01 +0000] "POST /login HTTP/1.1" 200 5 "-" "curl" "192.0.2.7"`+"\n", 4))
	trusting := disk.Write(t, dir+"/trusting.yaml", "trusted_proxies: [10.0.0.0/8]\n"+strings.TrimLeft(tightRules, "\n"))
	if report, said := rehearsal(t, trusting, "--log", behind, "--warm-up", "0s"); len(report.Denials) != 1 || report.Denials[0].Key != "192.0.2.7" {
		t.Errorf("behind a proxy that is trusted: %s", said)
	}
	for _, args := range [][]string{{tight}, {tight, "--log", log, "--server", "http://127.0.0.1:1"}, {tight, "--server", "127.0.0.1"}, {tight, "--log", log, "--deny-at-most", "0.1"}, {tight, "--log", log, "--deny-at-most", ""}, {tight, "--log", log, "--top", "0"}, {tight, "--log", "-", "--log", "-"}} {
		if _, said := rehearsal(t, args...); !strings.Contains(said, "exit 2") {
			t.Errorf("%v: %s", args, said)
		}
	}
}

// TestRehearseUnsure fails as a gate where what it played is not what came: logs that were
// read in part or stand there twice, and rules that change and hold requests in flight.
func TestRehearseUnsure(t *testing.T) {
	dir := t.TempDir()
	var lines strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&lines, "192.0.2.%d - - [05/Mar/2025:12:%02d:%02d +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"x\"\n", i%200, i/60, i%60)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.WriteString(w, lines.String()); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	whole := disk.Write(t, dir+"/whole.log", lines.String())
	cut := disk.Write(t, dir+"/cut.gz", packed.String()[:packed.Len()/2])
	sum := disk.Write(t, dir+"/sum.gz", packed.String()[:packed.Len()-8]+"12345678")
	other := disk.Write(t, dir+"/other.log", lines.String()+strings.Repeat("another program\n", 1000))
	some := disk.Write(t, dir+"/some.log", lines.String()+strings.Repeat("another program\n", 100))
	joined := disk.Write(t, dir+"/joined.log", lines.String()+strings.ReplaceAll(lines.String(), "\n", " "))
	paused := disk.Write(t, dir+"/paused.log", strings.Repeat("\x00", 100)+lines.String())
	holes := disk.Write(t, dir+"/holes.log", lines.String()+strings.Repeat("\x00", 5120)+lines.String()[:80]+"\n")
	var few bytes.Buffer
	w.Reset(&few)
	if _, err := io.WriteString(w, strings.Repeat(lines.String()[:1000], 30)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	behind := disk.Write(t, dir+"/behind.log", lines.String()+few.String())
	mixed := func(name, line string, wrap func(string) string) string {
		var b strings.Builder // one in ten lines is wrapped or cut
		for i := range 3000 {
			line := fmt.Sprintf(line, i%200, i/60, i%60)
			if i%10 == 0 && i > 100 {
				line = wrap(line)
			}
			fmt.Fprintln(&b, line)
		}
		return disk.Write(t, dir+"/"+name, b.String())
	}
	const object = `{"remote_addr":"192.0.2.%d","time":"2025-03-05T12:%02d:%02dZ","request_method":"GET","request_uri":"/","status":200}`
	objects := func(n int, end string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, object+end, i%200, i/60, i%60)
		}
		return b.String()
	}
	const pairs = `level=info msg=request remote_addr=192.0.2.%d time=2025-03-05T12:%02d:%02dZ method=GET path=/ status=200`
	in := func(format string) func(string) string {
		return func(line string) string { return fmt.Sprintf(format, line) }
	}
	until := func(word string) func(string) string {
		return func(line string) string { return line[:strings.Index(line, word)] }
	}
	bucket := disk.Write(t, dir+"/bucket.yaml", "rules: [{name: r, key: [ip], limits: 100/m}]\n")
	held := disk.Write(t, dir+"/held.yaml", "rules: [{name: r, key: [ip], limits: [2 in flight, 100/m]}]\n")
	before := disk.Write(t, dir+"/before.yaml", "rules: [{name: first, match: {path: /**}, unlimited: true, final: true}, {name: r, key: [ip], limits: [2 in flight, 100/m]}]\n")
	billed := disk.Write(t, dir+"/billed.yaml", "rules: [{name: r, key: [ip], limits: 100/m, count: {status: [401]}}]\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{bucket, "--log", whole}, ""},
		{[]string{bucket, "--log", cut}, "was not read to its end (unexpected EOF)"},
		{[]string{bucket, "--log", sum}, "was not read to its end (gzip: invalid checksum)"},
		{[]string{bucket, "--log", other}, "of all lines could not be read"},
		{[]string{bucket, "--log", some}, "3.29% of requests would be newly denied (0 of 2940, and 100 requests in lines that could not be read)"},
		{[]string{bucket, "--log", joined}, "in lines that could not be read"},
		{[]string{bucket, "--log", holes}, "71 requests in lines that could not be read"},
		{[]string{bucket, "--log", behind}, "in lines that could not be read"},
		{[]string{bucket, "--log", disk.Write(t, dir+"/again.log", lines.String()+"message repeated 99 times: [ "+lines.String()[:73]+"]\n")}, "99 requests in lines that could not be read"},
		{[]string{bucket, "--log", disk.Write(t, dir+"/merged.log", objects(3000, "\n")+objects(60, "")+"\n")}, "60 requests in lines that could not be read"},
		{[]string{bucket, "--log", disk.Write(t, dir+"/two.log", lines.String()+strings.Repeat(`192.0.2.1 - - [05/Mar/2025:12:50:01 +0000] "GET / HTTP/1.1" 200 5192.0.2.1 - - [05/Mar/2025:12:50:01 +0000] "GET / HTTP/1.1" 200 5 "-" "x"`+"\n", 30))}, "60 requests in lines that could not be read"},
		{[]string{bucket, "--log", mixed("docker.log", object, in(`{"log":%q}`))}, "of all lines could not be read"},
		{[]string{bucket, "--log", mixed("timed.log", object, in(`{"log":%q,"time":"2025-03-05T12:00:00Z"}`))}, "of all lines could not be read"},
		{[]string{bucket, "--log", mixed("journal.log", object, in(`{"MESSAGE":%q,"__REALTIME_TIMESTAMP":"1741176000000000"}`))}, "of all lines could not be read"},
		{[]string{bucket, "--log", mixed("fluent.log", object, in(`{"message":%q,"@timestamp":"2025-03-05T12:00:00Z"}`))}, "of all lines could not be read"},
		{[]string{bucket, "--log", mixed("text.log", object, in(`{"message":"192.0.2.1 - - [05/Mar/2025:12:00:00 +0000] \"GET / HTTP/1.1\" 200 5","x":%q}`))}, "of all lines could not be read"},
		{[]string{bucket, "--log", mixed("within.log", object, in(`{"level":"info","data":%s}`))}, "of all lines could not be read"},
		{[]string{bucket, "--log", mixed("own.log", object, func(string) string {
			return `{"level":"info","msg":"started","time":"2025-03-05T12:00:00Z","issuer":{"url":"http://x"}}`
		})}, ""},
		{[]string{bucket, "--log", mixed("middle.log", pairs, until(" method"))}, "of all lines could not be read"},
		{[]string{bucket, "--log", mixed("path.log", pairs, until("th=/"))}, "of all lines could not be read"},
		{[]string{bucket, "--log", mixed("early.log", "time=2025-03-05T12:%02[2]d:%02[3]dZ level=info msg=request remote_addr=192.0.2.%[1]d method=GET path=/ status=200", until(" remote"))}, "of all lines could not be read"},
		{[]string{bucket, "--log", mixed("pairs.log", pairs, func(string) string { return "level=info msg=started time=2025-03-05T12:00:00Z" })}, ""},
		{[]string{bucket, "--log", whole, "--log", whole}, "count twice"},
		{[]string{held, "--log", whole, "--before", bucket}, "rule r: limits in flight are not rehearsed"},
		{[]string{held, "--log", whole, "--before", held}, ""},
		{[]string{disk.Write(t, dir+"/only.yaml", "rules: [{name: r, key: [ip], limits: [2 in flight, 100/m]}]\n"), "--log", whole, "--before", before}, "rule r: limits in flight are not rehearsed"},
		{[]string{billed, "--log", whole, "--before", bucket}, "rule r: what responses cost is not rehearsed"},
		{[]string{billed, "--log", whole, "--before", billed}, ""},
	} {
		said := session{args: append([]string{"rehearse", "--deny-at-most", "1%"}, c.args...)}.run()
		_, refused, _ := strings.Cut(said, "refused: ")
		if c.want == "" && (strings.Contains(said, "exit ") || strings.Contains(said, "NOT TO BE TRUSTED")) ||
			c.want != "" && (!strings.HasSuffix(said, "exit 1\n") || !strings.Contains(refused, c.want)) {
			t.Errorf("%q, want %q:\n%s", c.args, c.want, said)
		}
	}
	if _, said := rehearsal(t, bucket, "--log", dir+"/own.log"); !strings.Contains(said, "289 lines about the server itself: left out") {
		t.Errorf("what a server says of itself is not noted: %s", said)
	}
	if _, said := rehearsal(t, bucket, "--log", paused); !strings.Contains(said, "100 NUL bytes") {
		t.Errorf("what was found in a log is not noted: %s", said)
	}
}
