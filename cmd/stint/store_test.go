package main_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/need"
)

// What differs from run to run, in the transcripts of stores.
var runs = []struct {
	of   *regexp.Regexp
	word string
}{
	{regexp.MustCompile(`(127\.0\.0\.1)?:\d{4,}|127\.0\.0\.1:\d+`), "ADDRESS"}, // a node of a cluster says its port alone
	{regexp.MustCompile(`-?\b\d+(\.\d+)?(ns|µs|ms|s)\b( ahead of| behind)?`), "TIME"},
	{regexp.MustCompile(`\b\d+\.\d MiB`), "SIZE"},
	{regexp.MustCompile(`(Redis )\d+\.\d+\.\d+`), "${1}VERSION"},
	{regexp.MustCompile(`\b\d+ %`), "SHARE"},
}

// otherFindings are those of stint doctor that are not about the store.
var otherFindings = regexp.MustCompile(`(?m)^(ok|warning) +(version|descriptors|clock|rules|ports|exposed|state) .*\n`)

// TestStores holds commands on real servers to transcripts. A comment starts a
// server, REDIS is its URL, and MASTER in its arguments another server's port:
//
//	# server --maxmemory 100mb
//	$ stint doctor --store REDIS
//
// Others are a cluster of one node, and a Sentinel of a server named main.
// Afterwards there are no keys in it but those that were there.
func TestStores(t *testing.T) {
	need.Time(t)
	files, err := filepath.Glob("testdata/stores/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			transcript(t, file, func(s session) string { return s.onServer(t) })
		})
	}
}

// onServer runs a session on a server of its own.
func (s session) onServer(t *testing.T) string {
	var redis *redisServer
	var login []string
	for _, line := range s.head {
		flags, ok := strings.CutPrefix(line, "# server")
		switch {
		case line == "# cluster":
			redis = startCluster(t)
		case line == "# sentinel":
			redis = startSentinel(t, startRedis(t, ""), 1)
		}
		if !ok {
			continue
		}
		if strings.Contains(flags, "MASTER") {
			_, port, _ := strings.Cut(startRedis(t, "").address, ":")
			flags = strings.ReplaceAll(flags, "MASTER", port)
		}
		redis = startRedis(t, "", strings.Fields(flags)...)
		if strings.Contains(flags, "--requirepass") {
			login = []string{"AUTH secret"}
		}
	}
	for i, arg := range s.args {
		if redis != nil {
			arg = strings.ReplaceAll(strings.ReplaceAll(arg, "REDIS", "redis://"+redis.address), "HOST", redis.address)
		}
		s.args[i] = arg
	}
	got := s.run()
	if redis != nil && !slices.Contains(s.head, "# sentinel") {
		if n, err := redis.command(append(login, "DBSIZE")...); err != nil || n != ":0" {
			t.Errorf("%s: left behind: %s %v", strings.Join(s.head, "\n"), n, err)
		}
	}
	if strings.Contains(got, "secret") {
		t.Errorf("%s: shows the password:\n%s", strings.Join(s.head, "\n"), got)
	}
	if s.args[0] == "simulate" { // which says the same each time
		return got
	}
	got = strings.ReplaceAll(got, "\n"+strings.Repeat(" ", 22), " ") // where lines end differs from run to run
	got = otherFindings.ReplaceAllString(got, "")
	for _, r := range runs {
		got = r.of.ReplaceAllString(got, r.word)
	}
	return got
}

// TestServeBeforeStore starts while the server is not there: questions are
// answered, and by the server once it comes.
func TestServeBeforeStore(t *testing.T) {
	address := freeport.Addr(t)
	s := startServe(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", sharedRules), "--http", "127.0.0.1:0", "--store", "redis://"+address, "--nodes", "1")
	for path, want := range map[string]int{"/pages": 200, "/closed": 503} {
		if got := s.check(path); got != want {
			t.Errorf("before the store, %s: %d, want %d", path, got, want)
		}
	}
	redis := startRedis(t, address)
	await.Until(t, "the store is asked", func() bool { return s.check("/closed") == http.StatusOK })
	s.becomes("stint_store_owing_keys", "0")
	if n := s.metric("stint_store_posted_units_total"); n != "1" {
		t.Errorf("%s units were charged afterwards, want 1", n)
	}
	if n, err := redis.command("EXISTS stint:{n3j}:pages/gcra%3A1h:192.0.2.7"); err != nil || n != ":1" {
		t.Errorf("what passed before is not in the store: %s %v", n, err)
	}
	s.stop("")
}

// TestServeOneSlot holds that the keys of rules lie in one slot of a cluster when
// they share their first attribute, or what the field tag says.
func TestServeOneSlot(t *testing.T) {
	const rules = `rules:
  - {name: client, key: [ip], limits: 9 per hour}
  - {name: endpoint, key: [ip, path], limits: 9 per hour fixed_window count_denied}
  - {name: user, key: [header.x-user, ip], tag: ip, limits: 2 per hour}
`
	redis := startCluster(t)
	s := startServe(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", rules), "--http", "127.0.0.1:0", "--store", "redis://"+redis.address, "--nodes", "1")
	if got := s.checks("/a", 3); got != "[200 200 429]" {
		t.Errorf("three times: %s", got)
	}
	s.stop("allowed=2 denied=1 failed=0")
	const tag = "stint:{n3j}:"
	keys := []string{"client/gcra%3A1h:192.0.2.7", "endpoint/fixed_window%3A1h:9:192.0.2.72:/a", "user/gcra%3A1h:9:192.0.2.7-"}
	if n, err := redis.command("EXISTS " + tag + strings.Join(keys, " "+tag)); err != nil || n != ":3" {
		t.Errorf("of three keys, %s are there: %v", n, err)
	}
}

const sharedRules = `rules:
  - {name: pages, match: {path: /pages}, key: [ip], limits: 3 per hour}
  - {name: closed, match: {path: /closed}, key: [ip], limits: 3 per hour, on_store_failure: closed}
  - {name: leased, match: {path: /leased}, key: [ip], limits: 3 per hour, mode: lease}
`

// TestServeStore shares limits between two processes through a server with a
// password, kills the server, and brings it back: every question is answered
// meanwhile, what was used counts, and the password is in no output.
func TestServeStore(t *testing.T) {
	redis := startRedis(t, "", "--requirepass", "secret")
	url := "redis://:secret@" + redis.address
	dir := t.TempDir()
	file := disk.Write(t, dir+"/stint.yaml", "store: "+url+"\n"+sharedRules)
	one := startServe(t, "-c", file, "--http", "127.0.0.1:0", "--nodes", "2")
	t.Setenv("STINT_STORE", url)
	other := startServe(t, "-c", disk.Write(t, dir+"/other.yaml", sharedRules), "--http", "127.0.0.1:0")
	if n := one.metric("stint_store_nodes"); n != "2" {
		t.Errorf("stint_store_nodes %s, want 2", n)
	}
	other.counts(2) // the first beats too, for others to count it
	if got := []int{one.check("/pages"), other.check("/pages"), one.check("/pages"), other.check("/pages"), one.check("/pages")}; fmt.Sprint(got) != "[200 200 200 429 429]" {
		t.Errorf("three units over two processes: %v", got)
	}
	one.check("/closed")

	redis.Kill()
	// Each holds half of 3, rounded down to 1, with or without --nodes.
	for path, want := range map[string]int{"/pages": 429, "/closed": 503} {
		if got := one.check(path); got != want {
			t.Errorf("without the store, %s: %d, want %d", path, got, want)
		}
	}
	for _, s := range []*running{one, other} {
		if got := s.checks("/leased", 4); got != "[200 429 429 429]" {
			t.Errorf("without the store, four times: %s", got)
		}
	}
	if n := one.metric(`stint_store_errors_total{interface="http"}`); n == "" || n == "0" {
		t.Errorf("stint_store_errors_total %q, want some", n)
	}

	startRedis(t, redis.address, "--requirepass", "secret")
	await.Until(t, "the store is asked again", func() bool {
		got := one.check("/closed")
		if got != http.StatusOK && got != http.StatusServiceUnavailable {
			t.Fatalf("while the store comes back: %d", got)
		}
		return got == http.StatusOK
	})
	other.becomes("stint_store_owing_keys", "0")
	if n := one.metric("stint_store_breakers_open"); n != "0" {
		t.Errorf("stint_store_breakers_open %s, want 0", n)
	}
	for _, s := range []*running{one, other} {
		s.stop("")
		if said := s.log(); strings.Contains(said, "secret") || !strings.Contains(said, "store=redis://"+redis.address) {
			t.Errorf("the log shows the password, or not the server:\n%s", said)
		}
	}
}

// TestServeCounts starts two processes without --nodes, lets them count, and kills
// the server: together they let one limit through.
func TestServeCounts(t *testing.T) {
	redis := startRedis(t, "")
	file := disk.Write(t, t.TempDir()+"/stint.yaml", `rules:
  - {name: wide, match: {path: /wide}, key: [ip], limits: 40 per hour}
  - {name: narrow, match: {path: /narrow}, key: [ip], limits: [7 per 1000h fixed_window, 9 per day]}
`)
	var both []*running
	for range 2 {
		both = append(both, startServe(t, "-c", file, "--http", "127.0.0.1:0", "--store", "redis://"+redis.address))
	}
	for _, s := range both {
		s.counts(2)
	}
	redis.Kill()
	for path, limit := range map[string]int{"/wide": 40, "/narrow": 7} {
		passed := 0
		for range limit + 5 {
			for _, s := range both {
				switch status := s.check(path); status {
				case http.StatusOK:
					passed++
				case http.StatusTooManyRequests:
				default:
					t.Fatalf("%s without the store: %d", path, status)
				}
			}
		}
		if passed > limit || passed < limit-1 { // 7 are 3 and 3
			t.Errorf("%s: %d passed on two processes without their store, want %d, or what of it two can share evenly", path, passed, limit)
		}
	}
	for _, s := range both {
		if n := s.metric("stint_store_nodes"); n != "2" {
			t.Errorf("stint_store_nodes %s without the store, want 2 as before", n)
		}
		s.stop("")
		if _, said, counted := strings.Cut(s.log(), "counted the processes"); !counted || strings.Contains(said, "is not known") {
			t.Errorf("a warning although they counted:\n%s", s.log())
		}
	}
}

// TestServeCountsNobody warns when the store has not answered: this process
// then holds the whole of every limit.
func TestServeCountsNobody(t *testing.T) {
	need.Time(t)
	s := startServe(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", sharedRules), "--http", "127.0.0.1:0", "--store", "redis://"+freeport.Addr(t))
	s.waitFor("is not known")
	if n := s.metric("stint_store_nodes"); n != "0" {
		t.Errorf("stint_store_nodes %s, want 0: nobody has been counted", n)
	}
	if got := s.checks("/pages", 4); got != "[200 200 200 429]" {
		t.Errorf("four times: %s", got)
	}
	s.stop("")
}

// TestServeRemembersNodes starts one of two processes again while their server is away: it
// holds the half of a limit, as before.
func TestServeRemembersNodes(t *testing.T) {
	redis := startRedis(t, "")
	start := func(file string) *running {
		return startServe(t, "-c", file, "--http", "127.0.0.1:0", "--store", "redis://"+redis.address, "--store-timeout", "1s")
	}
	file := disk.Write(t, t.TempDir()+"/stint.yaml", sharedRules)
	one, other := start(file), start(disk.Write(t, t.TempDir()+"/stint.yaml", sharedRules))
	one.counts(2)
	other.counts(2)
	redis.Kill()
	one.stop("")
	again := start(file)
	again.waitFor("as many are assumed as when it last did")
	if n, counted := again.metric("stint_store_nodes"), again.metric("stint_store_nodes_counted"); n != "2" || counted != "0" {
		t.Errorf("stint_store_nodes %s, counted %s; want 2 and 0", n, counted)
	}
	if got := again.checks("/pages", 2); got != "[200 429]" { // of 3
		t.Errorf("twice: %s", got)
	}
}

// TestServeSettlesOutage stops the server while requests that reserve little settle the
// truth, which is much more: they have used it, like those who took it at once.
func TestServeSettlesOutage(t *testing.T) {
	redis := startRedis(t, "")
	s := startServe(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", `attributes: [user]
rules:
  - {name: api, key: [user], limits: 100 per 100 minutes}
`), "--http", "127.0.0.1:0", "--store", "redis://"+redis.address, "--store-timeout", "200ms", "--nodes", "1")
	ask := func(path, body, part string) string {
		t.Helper()
		status, answer := s.ask(path, body, "")
		if status != http.StatusOK {
			t.Fatalf("%s %s: %d %s", path, body, status, answer)
		}
		found := regexp.MustCompile(part).FindStringSubmatch(answer)
		if found == nil {
			t.Fatalf("%s: %s", path, answer)
		}
		return found[1]
	}
	reserve := func(user string) string {
		return ask("/v1/reserve", fmt.Sprintf(`{"attributes":{"user":%q},"cost":1,"ttl":"10m"}`, user), `"reservation":"([^"]+)"`)
	}
	settle := func(token string) {
		ask("/v1/settle", fmt.Sprintf(`{"reservation":%q,"cost":9}`, token), `(allowed)`)
	}
	var before []string
	for range 5 {
		before = append(before, reserve("before"))
	}
	redis.Signal(t, syscall.SIGSTOP)
	defer redis.Signal(t, syscall.SIGCONT)
	for i := 0; s.metric("stint_store_breakers_open") != "1"; i++ { // so that no call is ambiguous
		ask("/v1/check", fmt.Sprintf(`{"attributes":{"user":"other %d"}}`, i), `(allowed)`)
	}
	for _, token := range before {
		settle(token)
		settle(reserve("meanwhile"))
		ask("/v1/check", `{"attributes":{"user":"plain"},"cost":9}`, `(allowed)`)
	}
	redis.Signal(t, syscall.SIGCONT)
	left := func(user string) string {
		return ask("/v1/peek", fmt.Sprintf(`{"attributes":{"user":%q}}`, user), `"remaining":(\d+)`)
	}
	await.Until(t, "nothing is owed", func() bool {
		return s.metric("stint_store_breakers_open") == "0" && s.metric("stint_store_owing_keys") == "0" && left("before") != "95"
	})
	for _, user := range []string{"before", "meanwhile", "plain"} {
		if n := left(user); n != "55" {
			t.Errorf("%s: %s left, want 55", user, n)
		}
	}
}

// late copies what arrives, each piece as much later.
func late(to io.Writer, from io.Reader, later time.Duration) {
	type piece struct {
		due  time.Time
		text []byte
	}
	line := make(chan piece, 1024)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for p := range line {
			time.Sleep(time.Until(p.due))
			_, _ = to.Write(p.text)
		}
	}()
	defer func() { close(line); <-sent }()
	for {
		b := make([]byte, 64<<10)
		n, err := from.Read(b)
		if n > 0 {
			line <- piece{time.Now().Add(later), b[:n]}
		}
		if err != nil {
			return
		}
	}
}

// TestServeDeadlines has Envoy's calls end before the store would: with the server a
// little farther away than the caller waits, and with one that is stopped. Each rule
// decides in time, as it says. Times are ten times those of a real Envoy, for machines
// that have other things to do.
func TestServeDeadlines(t *testing.T) {
	const rules = `
attributes: [domain, user]
rules:
  - {name: local, match: {domain: local}, key: [user], limits: 10/h}
  - {name: closed, match: {domain: closed}, key: [user], limits: 10/h, on_store_failure: closed}
  - {name: open, match: {domain: open}, key: [user], limits: 1000/h, on_store_failure: open}
`
	const calls, waits, deadline, away = 60, 200 * time.Millisecond, "250ms", 210 * time.Millisecond
	for name, stopped := range map[string]bool{"far away": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			redis := startRedis(t, "")
			address := redis.address
			if stopped {
				defer redis.Signal(t, syscall.SIGCONT)
			} else {
				address = between(t, redis.address, copied, func(to io.Writer, from io.Reader) { late(to, from, away) })
			}
			s := startServe(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", rules), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
				"--store", "redis://"+address, "--store-timeout", deadline, "--nodes", "1")
			envoy := grpcClient(t, s.at("interface=grpc"), insecure.NewCredentials())
			ask := func(domain string, waits time.Duration) (pb.RateLimitResponse_Code, error) {
				ctx, cancel := context.WithTimeout(t.Context(), waits)
				defer cancel()
				answer, err := envoy.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{
					{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: "ada"}}},
				}})
				return answer.GetOverallCode(), err
			}
			if code, err := ask("none", patience); err != nil || code != pb.RateLimitResponse_OK { // it is connected
				t.Fatal(code, err)
			}
			if stopped {
				redis.Signal(t, syscall.SIGSTOP)
			}
			for domain, want := range map[string][2]int{"local": {5, 15}, "closed": {0, 0}, "open": {calls - 3, calls}} {
				passed, late := 0, 0
				for range calls {
					switch code, err := ask(domain, waits); {
					case status.Code(err) == codes.DeadlineExceeded:
						late++
					case err != nil:
						t.Fatal(err)
					case code == pb.RateLimitResponse_OK:
						passed++
					}
				}
				if passed < want[0] || passed > want[1] || late > 3 {
					t.Errorf("%s: of %d calls %d passed, %d had no answer in time; want %d to %d, and 3 at most", domain, calls, passed, late, want[0], want[1])
				}
			}
		})
	}
}
