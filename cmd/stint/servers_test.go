package main_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/await"
	"github.com/stint-dev/stint/internal/freeport"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"

	main "github.com/stint-dev/stint/cmd/stint"
)

// A fleet is three servers on a database of rules, and the token of an operator.
type fleet struct {
	t          *testing.T
	url, token string
	nodes      []*running
	db         *rulesdb.DB
}

// onFleets runs a test on SQLite, where nodes tell their addresses by themselves, and
// on PostgreSQL.
func onFleets(t *testing.T, test func(f *fleet)) {
	t.Run("sqlite", func(t *testing.T) { test(startFleet(t, "sqlite:"+t.TempDir()+"/stint.db", false)) })
	t.Run("postgres", func(t *testing.T) { test(startFleet(t, dbtest.Postgres(t).URL, true)) })
}

func startFleet(t *testing.T, url string, advertise bool) *fleet {
	t.Cleanup(main.SetAskWithin(patience))
	f := &fleet{t: t, url: url}
	f.must("rules", "migrate")
	f.must("rules", "push", writeFile(t, t.TempDir()+"/stint.yaml", `rules: [{name: orders, key: [header.x-api-key], limits: ["4 per day"]}]`))
	f.token = writeFile(t, t.TempDir()+"/token", f.must("token", "make", "pager", "--role", "operator"))
	for i := range 3 {
		admin := freeport.Addr(t)
		args := []string{"serve", "--http", "127.0.0.1:0", "--admin", admin, "--rules", url, "--rules-copy", "none", "--node", fmt.Sprintf("web-%d", i+1)}
		if advertise {
			args = append(args, "--advertise", "http://"+admin)
		}
		p := launch(t, "serve", args...)
		p.listening()
		f.nodes = append(f.nodes, p)
	}
	db, err := rulesdb.Open(url, rulesdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	f.db = db
	await.Until(t, "all say where they are", func() bool {
		rows, err := db.Nodes(t.Context(), time.Hour)
		return err == nil && len(rows) == 3 && !slices.ContainsFunc(rows, func(n rulesdb.Node) bool { return n.Address == "" })
	})
	return f
}

// stint runs a command.
func (f *fleet) stint(args ...string) (status int, out, errs string) {
	f.t.Helper()
	var o, e bytes.Buffer
	status = main.Run(f.t.Context(), args, strings.NewReader(""), &o, &e)
	return status, o.String(), e.String()
}

// must runs a command on the database, and returns what it printed.
func (f *fleet) must(args ...string) string {
	f.t.Helper()
	status, out, errs := f.stint(append(args, "--rules", f.url)...)
	if status != 0 {
		f.t.Fatalf("stint %s: exit %d %s", strings.Join(args, " "), status, errs)
	}
	return strings.TrimSpace(out)
}

// allowed are the flags of an operator who allows the nodes.
func (f *fleet) allowed() []string {
	args := []string{"--token-file", f.token}
	for _, p := range f.nodes {
		args = append(args, "--nodes-at", strings.TrimPrefix(p.admin, "http://"))
	}
	return args
}

// row has somebody who may write rows of nodes write one.
func (f *fleet) row(name, address string) {
	f.t.Helper()
	if err := f.db.Report(f.t.Context(), rulesdb.Node{Name: name, Address: address}); err != nil {
		f.t.Fatal(err)
	}
}

// TestFleet asks three nodes that the database names, while others who may write rows
// there would like to have the token of who asks.
func TestFleet(t *testing.T) {
	onFleets(t, func(f *fleet) {
		t := f.t
		for i, p := range f.nodes {
			p.requests("partner-1", 5+i) // of which 4 pass
			p.requests(fmt.Sprintf("only-%d", i+1), 5)
		}
		sums := func(b board) string {
			var keys []string
			for _, d := range b.Denied {
				keys = append(keys, fmt.Sprint(d.Key, " ", d.Count))
			}
			return fmt.Sprint(b.Rules[0].Allowed, " ", b.Rules[0].Denied, " ", keys[0])
		}
		const all = "24 9 partner-1 6"
		question := func(status int, ways []string, args ...string) (out, errs string) {
			t.Helper()
			got, out, errs := f.stint(append(args, ways...)...)
			if got != status {
				t.Fatalf("stint %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, status, out, errs)
			}
			return out, errs
		}
		byRules := append([]string{"--rules", f.url}, f.allowed()...)
		byServer := append([]string{"--server", f.nodes[1].admin}, f.allowed()...)
		for _, ways := range [][]string{byRules, byServer} {
			out, _ := question(0, ways, "top", "--json")
			if got := sums(decode[board](t, out)); got != all {
				t.Errorf("%s, want %s", got, all)
			}
			out, _ = question(0, ways, "block", "list")
			for _, want := range []string{"partner-1: denied", "only-1: denied", "only-2: denied", "only-3: denied"} {
				if strings.Count(out, want) != 1 {
					t.Errorf("%q is not there once:\n%s", want, out)
				}
			}
			out, _ = question(0, ways, "inspect", "--header", "x-api-key=only-2")
			if !strings.Contains(out, "at web-1\nPasses now.\npasses orders") || !strings.Contains(out, "\n\nat web-3\nPasses now.\npasses orders") || !strings.Contains(out, "at web-2\nDenied now.\nDENIED orders") {
				t.Errorf("inspect:\n%s", out)
			}
			out, _ = question(0, ways, "inspect", "--json", "--header", "x-api-key=only-2")
			if !strings.Contains(out, `{"node":"web-2","story":{`) || strings.Count(out, "\n") != 3 {
				t.Errorf("inspect --json:\n%s", out)
			}
		}
		out, errs := question(1, []string{"--rules", f.url, "--token-file", f.token, "--nodes-at", "10.0.0.0/8"}, "top")
		if out != "" || strings.Count(errs, "is none that you allow: --nodes-at 127.0.0.1:") != 3 {
			t.Errorf("nobody is allowed:\n%s%s", out, errs)
		}
		f.lies(question, byRules, func(out string) {
			t.Helper()
			if got := sums(decode[board](t, out)); got != all {
				t.Errorf("beside liars: %s, want %s", got, all)
			}
		})
		_ = f.nodes[2].end(syscall.SIGKILL)
		out, errs = question(1, byRules, "top", "--json")
		if got, want := sums(decode[board](t, out)), "16 5 partner-1 3"; got != want || !strings.Contains(errs, "node web-3 is missing: ") {
			t.Errorf("without one: %s, want %s\n%s", got, want, errs)
		}
		out, errs = question(1, byRules, "block", "list")
		if !strings.Contains(out, "only-1: denied") || strings.Contains(out, "only-3") || !strings.Contains(errs, "node web-3 is missing: ") {
			t.Errorf("without one:\n%s%s", out, errs)
		}
	})
}

// lies writes rows that lead to listeners of somebody else. None of them gets a token.
func (f *fleet) lies(question func(int, []string, ...string) (string, string), ways []string, right func(out string)) {
	t := f.t
	t.Helper()
	var asked atomic.Int32
	var token atomic.Value
	token.Store("")
	listen := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if shown := r.Header.Get("Authorization"); shown != "" {
			token.Store(shown)
		}
	})
	plain, forged := httptest.NewServer(listen), httptest.NewUnstartedServer(listen)
	defer plain.Close()
	forged.Config.ErrorLog = log.New(io.Discard, "", 0)
	forged.StartTLS()
	defer forged.Close()
	for name, address := range map[string]string{
		"liar": plain.URL, "forger": forged.URL, "clear": "http://192.0.2.1:9090", "twin": f.nodes[0].admin, "mute": "", "path": plain.URL + "/a?b", "user": "http://a:b@127.0.0.1",
	} {
		f.row(name, address)
	}
	out, errs := question(1, append(ways, "--nodes-at", strings.TrimPrefix(forged.URL, "https://"), "--nodes-at", "192.0.2.0/24"), "top", "--json")
	right(out)
	for _, want := range []string{
		"node liar is missing: not asked: " + plain.URL + " is none that you allow: --nodes-at " + strings.TrimPrefix(plain.URL, "http://") + " does",
		"node forger is missing: " + forged.URL + ": ", "certificate",
		"node clear is missing: not asked: 192.0.2.1:9090: a token would go over the network in clear",
		"node web-1 is missing: not asked: " + f.nodes[0].admin + " is the address of node twin",
		"node mute is missing: not asked: it tells no address",
		"node path is missing: not asked: " + plain.URL + "/a?b is no address", "node user is missing: not asked: http://a:b@127.0.0.1 is no address",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is missing:\n%s", want, errs)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("somebody else was asked %d times, with the token %q", n, token.Load())
	}
	// Who shows no token asks all on this machine.
	question(1, []string{"--rules", f.url}, "top")
	if n := asked.Load(); n == 0 || token.Load() != "" {
		t.Errorf("without a token: asked %d times, with the token %q", n, token.Load())
	}
	for _, name := range []string{"liar", "forger", "clear", "twin", "mute", "path", "user"} {
		f.row(name, "")
	}
	dbtest.Exec(t, f.url, "DELETE FROM stint_nodes WHERE address = ''")
}

// TestFleetSlow has a node that takes the question and never answers: the others'
// answers are there, and it is named.
func TestFleetSlow(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it waits for a node")
	}
	f := startFleet(t, "sqlite:"+t.TempDir()+"/stint.db", false)
	leave := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	}))
	defer slow.Close()
	defer close(leave)
	f.row("slow", slow.URL)
	main.SetAskWithin(20 * time.Second) // in which the others answer
	status, out, errs := f.stint("top", "--rules", f.url)
	if status != 1 || !strings.Contains(out, "web-1 web-2 web-3 ") || !strings.Contains(errs, "node slow is missing: "+slow.URL+": ") {
		t.Errorf("exit %d\n%s%s", status, out, errs)
	}
}

// TestBlocksOfSeveral has two servers without a database: each has its own blocks, and
// what both have is one line.
func TestBlocksOfSeveral(t *testing.T) {
	f, servers := &fleet{t: t}, []string{}
	for _, key := range []string{"first", "second"} {
		dir := t.TempDir()
		file := writeFile(t, dir+"/stint.yaml", `rules: [{name: orders, key: [header.x-api-key], limits: ["4 per day"]}]`)
		p := launch(t, "serve", "serve", file, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--state", dir+"/state")
		p.listening()
		servers = append(servers, "--server", p.admin)
		for _, one := range []string{"both", "only-" + key} {
			if status, _, errs := f.stint("block", "set", one, "--rule", "orders", "--server", p.admin); status != 0 {
				t.Fatal(errs)
			}
		}
	}
	status, out, errs := f.stint(append([]string{"block", "list"}, servers...)...)
	if status != 0 || errs != "" || strings.Count(out, "\n") != 3 {
		t.Errorf("exit %d %s\n%s", status, errs, out)
	}
	for _, want := range []string{"orders both: block", "orders only-first: block", "orders only-second: block"} {
		if strings.Count(out, want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, out)
		}
	}
}

// TestNodesAt has which addresses are allowed by --nodes-at.
func TestNodesAt(t *testing.T) {
	token := writeFile(t, t.TempDir()+"/token", "a token")
	for _, c := range []struct {
		nodesAt, address string
		asked            bool
	}{
		{"10.0.0.1", "https://10.0.0.1:9090", true},
		{"10.0.0.1:9090", "https://10.0.0.1:9090", true},
		{"10.0.0.1:9091", "https://10.0.0.1:9090", false},
		{"10.0.0.1:443", "https://10.0.0.1", true},
		{"10.0.0.0/24", "https://10.0.0.77:9090", true},
		{"10.0.0.0/24", "https://10.0.1.77:9090", false},
		{"10.0.0.0/24", "https://10.0.0.77.example.com:9090", false},
		{"10.0.0.0/24", "https://[::ffff:10.0.0.77]:9090", true},
		{"fd00::/8", "https://[fd00::1]:9090", true},
		{"[fd00::1]:9090", "https://[fd00::1]:9090", true},
		{"fd00::1", "https://[fd00::1]:9090", true},
		{"*.stint.internal", "https://web-1.stint.internal:9090", true},
		{"*.stint.internal", "https://WEB-1.Stint.Internal", true},
		{"*.stint.internal", "https://stint.internal", false},
		{"*.stint.internal", "https://web-1.stint.internal.example.com", false},
		{"*.stint.internal", "https://evilstint.internal", false},
		{"web-1", "https://web-1:9090", true},
		{"web-1", "https://web-10:9090", false},
		{"web-1", "https://web-1@192.0.2.1:9090", false},
		{"web-1", "http://web-1:9090", false},
		{"web-1", "ftp://web-1", false},
		{"localhost", "http://localhost:9090", true},
		{"web-1", "http://127.0.0.1:9090", false},
	} {
		if err := main.NotAsked(c.nodesAt, token, c.address); (err == nil) != c.asked {
			t.Errorf("--nodes-at %s, %s: %v", c.nodesAt, c.address, err)
		}
	}
	for _, strange := range []string{"https://web-1\u009b31m:9090", "https://web-1%C2%9B31m:9090", "https://web-1\u202e:9090", "https://[fe80::1%25%C2%9B31m]:9090"} {
		if err := main.NotAsked("web-2", token, strange); err == nil || !strings.HasSuffix(err.Error(), "is no address") || strings.ContainsAny(err.Error(), "\u009b\u202e") {
			t.Errorf("%q: %q", strange, err)
		}
	}
	for address, asked := range map[string]bool{"http://127.0.0.1:9090": true, "https://[::1]": true, "http://10.0.0.1:9090": false} {
		if err := main.NotAsked("web-1", "", address); (err == nil) != asked {
			t.Errorf("%s, without a token: %v", address, err)
		}
	}
	for _, bad := range []string{"*", "10.0.0.0/99", "https://web-1", "a@b"} {
		if err := main.NotAsked(bad, token, "https://web-1"); err == nil || !strings.Contains(err.Error(), "want HOST") {
			t.Errorf("--nodes-at %s: %v", bad, err)
		}
	}
}

// TestAdvertise has what a node writes of its own address.
func TestAdvertise(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rules, flag, admin string
		encrypted          bool
		want               string
	}{
		{"postgres://a", "", "10.0.0.1:9090", true, "https://10.0.0.1:9090"},
		{"postgres://a", "", "10.0.0.1:9090", false, "http://10.0.0.1:9090"},
		{"postgres://a", "", "[fd00::1]:9090", true, "https://[fd00::1]:9090"},
		{"postgres://a", "", "0.0.0.0:9090", true, "https://" + host + ":9090"},
		{"postgres://a", "", "127.0.0.1:9090", false, ""},
		{"postgres://a", "", "[::1]:9090", false, ""},
		{"postgres://a", "http://127.0.0.1:9090", "127.0.0.1:9090", false, "http://127.0.0.1:9090"},
		{"sqlite:a", "", "127.0.0.1:9090", false, "http://127.0.0.1:9090"},
		{"sqlite:a", "none", "127.0.0.1:9090", false, ""},
		{"postgres://a", "https://web-1.stint.internal/", "0.0.0.0:9090", true, "https://web-1.stint.internal"},
		{"postgres://a", "web-1:9090", "0.0.0.0:9090", true, "error"},
		{"postgres://a", "https://web-1/admin", "0.0.0.0:9090", true, "error"},
		{"postgres://a", "https://" + strings.Repeat("a", 250), "0.0.0.0:9090", true, "error"},
	} {
		got, err := main.Advertised(c.rules, c.flag, c.admin, c.encrypted)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%s, --advertise %q, %s: %s %v, want %s", c.rules, c.flag, c.admin, got, err, c.want)
		}
	}
}
