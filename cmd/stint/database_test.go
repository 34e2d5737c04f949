package main_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/rulesdb/dbtest"
)

var unsteady = regexp.MustCompile(`\d{4}-\d\d-\d\d(T|\s+)\d\d:\d\d:\d\d(\.\d+)?Z|\b[A-Z2-7]{26}\b`)

// steady runs a session, in whose answer times, identities and tokens are replaced.
func steady(s session) string {
	return unsteady.ReplaceAllStringFunc(s.run(), func(s string) string {
		if len(s) == 26 && s[4] != '-' {
			return "RANDOM"
		}
		return "TIME"
	})
}

// TestDatabase runs the commands that change rules in a database, in a directory
// of their own.
func TestDatabase(t *testing.T) {
	dir, err := filepath.Abs("testdata/database")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, name := range []string{"one.yaml", "two.yaml", "bad.yaml", "tiers.yaml", "customers.csv"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(name, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("STINT_RULES", "sqlite:stint.db")
	transcript(t, filepath.Join(dir, "commands.txt"), narrow(t, steady))
}

// TestDatabaseJSON has the fields that programs read.
func TestDatabaseJSON(t *testing.T) {
	rules, err := filepath.Abs("testdata/database/one.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for range 3 {
		if got := (session{args: []string{"rules", "push", rules, "--rules", "sqlite:a.db", "--author", "anna", "--comment", "why", "--json"}}).run(); got[0] != '{' {
			t.Fatal(got)
		}
	}
	var log []struct {
		Version            int64
		Author, At, Hash   string
		Comment            string
		Document, Identity *string
	}
	got := session{args: []string{"rules", "log", "--rules", "sqlite:a.db", "--json"}}.run()
	if err := json.Unmarshal([]byte(got), &log); err != nil || len(log) != 3 {
		t.Fatalf("%v: %s", err, got)
	}
	if one := log[0]; one.Version != 3 || one.Author != "anna" || one.Comment != "why" || len(one.Hash) != 64 || one.At == "" || one.Document != nil {
		t.Errorf("%+v", one)
	}
}

// TestCopyFile has no home directory, as a service may: the log says that no copy of the
// rules is kept, unless none is wanted.
func TestCopyFile(t *testing.T) {
	for _, test := range []struct {
		rules, flag, home string
		kept, warns       bool
	}{
		{"postgres://db/stint", "", "/home/anna", true, false},
		{"postgres://db/stint", "", "", false, true},
		{"postgres://db/stint", "none", "", false, false},
		{"postgres://db/stint", "/var/lib/stint/rules", "", true, false},
		{"sqlite:stint.db", "", "", false, false},
	} {
		for _, name := range []string{"HOME", "XDG_CACHE_HOME", "LocalAppData"} {
			t.Setenv(name, test.home)
		}
		var log strings.Builder
		file := main.CopyFile(test.rules, test.flag, slog.New(slog.NewTextHandler(&log, nil)))
		if kept, warns := file != "", strings.Contains(log.String(), "--rules-copy FILE"); kept != test.kept || warns != test.warns {
			t.Errorf("%+v: kept in %q, log %s", test, file, &log)
		}
	}
}

// TestDemoDatabase starts on a SQLite file that is not there: it has the rules of
// the demo and a customer's own limits then, and decides by both. A second start
// leaves what it finds.
func TestDemoDatabase(t *testing.T) {
	database := "sqlite:" + t.TempDir() + "/stint.db"
	command := func(args ...string) string {
		t.Helper()
		return session{args: append(args, "--rules", database)}.run()
	}
	begin := func(says string) *running {
		t.Helper()
		p := operated(t, "--rules", database, "--demo")
		p.waitFor(says)
		return p
	}
	p := begin("the database has rules now")
	if said := command("override", "list"); !strings.Contains(said, "api") || !strings.Contains(said, "friend") || !strings.Contains(said, "50/m") {
		t.Errorf("overrides:\n%s", said)
	}
	for key, want := range map[string]string{"friend": `"limit":50,`, "another": `"limit":5,`} {
		status, answer := p.call("POST", p.front+"/v1/check", `{"attributes":{"method":"GET","path":"/api/items","header.x-api-key":"`+key+`","ip":"192.0.2.7"}}`, nil)
		if status != 200 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s, want %s", key, status, answer, want)
		}
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	command("override", "remove", "api", "friend")
	p = begin("the database holds rules already")
	if said := command("rules", "log", "--json"); strings.Count(said, `"version"`) != 1 {
		t.Errorf("a second start publishes:\n%s", said)
	}
	if said := command("override", "list"); strings.Contains(said, "friend") {
		t.Errorf("a second start writes:\n%s", said)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// A dumping is a database server with its programs to dump and to restore.
type dumping struct {
	programs      []string
	url           func(t testing.TB) string
	dump, restore func(url, file string) []string
}

var dumpings = map[string]dumping{
	"postgres": {
		programs: []string{"pg_dump", "psql"},
		url:      func(t testing.TB) string { return dbtest.Postgres(t).URL },
		dump: func(url, file string) []string {
			return []string{"pg_dump", "--clean", "--if-exists", "--file", file, url}
		},
		restore: func(url, file string) []string {
			return []string{"psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", file, url}
		},
	},
	"mariadb": {
		programs: []string{"mariadb-dump", "mariadb"},
		url:      func(t testing.TB) string { return dbtest.MariaDB(t).URL },
		dump: func(url, file string) []string {
			return append([]string{"mariadb-dump", "--result-file=" + file}, mariadbAt(url)...)
		},
		restore: func(url, file string) []string {
			return append([]string{"mariadb", "--execute=source " + file}, mariadbAt(url)...)
		},
	},
}

// mariadbAt returns what MariaDB's programs take in place of a URL.
func mariadbAt(text string) []string {
	u, err := url.Parse(text)
	if err != nil {
		panic(err) // dbtest made it
	}
	return []string{"--host=" + u.Hostname(), "--port=" + u.Port(), "--user=" + u.User.Username(), strings.TrimPrefix(u.Path, "/")}
}

// TestRestoredDatabase restores PostgreSQL and MariaDB to an older state with their
// own programs, while a server runs: it decides by what it holds, says so, also
// after a restart and when the older state is changed, and takes that once it is
// accepted.
func TestRestoredDatabase(t *testing.T) {
	need.Time(t)
	for name, d := range dumpings {
		t.Run(name, func(t *testing.T) { restoredDatabase(t, d) })
	}
}

func restoredDatabase(t *testing.T, d dumping) {
	for _, program := range d.programs {
		need.Program(t, program)
	}
	url, dir := d.url(t), t.TempDir()
	command := func(args ...string) string {
		t.Helper()
		return session{args: append(args, "--rules", url)}.run()
	}
	program := func(args []string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	command("rules", "migrate")
	command("rules", "push", "testdata/database/one.yaml")
	dump := filepath.Join(dir, "dump.sql")
	program(d.dump(url, dump))
	command("rules", "push", "testdata/database/two.yaml")
	start := func() *running {
		return startServe(t, "--rules", url, "--rules-copy", filepath.Join(dir, "copy"), "--node", "n1", "--http", "127.0.0.1:0")
	}
	s := start()
	limit := func(want string) bool {
		_, answer := s.ask("/v1/peek", `{"attributes":{"path":"/api/a","header.x-api-key":"k","ip":"192.0.2.1"}}`, "")
		return strings.Contains(answer, `"limit":`+want+",")
	}
	await.Until(t, "the newest rules", func() bool { return limit("20") })
	alarm := func() bool { return strings.Contains(command("rules", "nodes", "--json"), "stint rules accept") }
	program(d.restore(url, dump))
	await.Until(t, "the alarm", alarm)
	if !limit("20") {
		t.Error("the older state is taken before it is accepted")
	}
	_ = s.end(syscall.SIGKILL) // as a crash does
	s = start()
	await.Until(t, "the alarm after a restart", alarm)
	if !limit("20") {
		t.Error("after a restart, the older state is taken before it is accepted")
	}
	command("rules", "push", "testdata/database/three.yaml") // under the number that the server holds
	_ = s.end(syscall.SIGKILL)
	s = start()
	await.Until(t, "the alarm for another history", alarm)
	if !limit("20") {
		t.Error("another history is taken before it is accepted")
	}
	command("rules", "accept", "--reason", "restored on purpose")
	await.Until(t, "what was accepted", func() bool { return limit("30") })
}

// TestOperateHTTPS acts where the rules come over https and acts are kept in a
// state file: they stay when the rules change there, when a rule goes and comes
// back, after a kill, and while the server of the rules is gone.
func TestOperateHTTPS(t *testing.T) {
	need.Time(t)
	var document atomic.Value
	publish := func(limit string) { document.Store(strings.Replace(operateRules, "orders", limit, 1)) }
	document.Store(operateRules)
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := document.Load().(string)
		tag := fmt.Sprintf(`"%x"`, text)
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, text)
	}))
	defer site.Close()
	dir := t.TempDir()
	t.Setenv("SSL_CERT_FILE", disk.Write(t, dir+"/ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: site.Certificate().Raw}))))
	begin := func() *running {
		return operated(t, "--rules", site.URL+"/stint.yaml", "--rules-copy", dir+"/copy", "--state", dir+"/state")
	}
	p := begin()
	p.requests("partner-1", 6)
	if p.requests("partner-1", 1) != 0 {
		t.Fatal("the rules over https are not in force")
	}
	if status, out, errs := p.stint("override", "set", "orders", "partner-1", "100/h", "--for", "1h"); status != 0 {
		t.Fatal(out, errs)
	}
	held := func(when string) {
		t.Helper()
		await.Until(t, "the override holds "+when, func() bool { return p.requests("partner-1", 1) == 1 })
		if s := p.inspect("--header", "x-api-key=partner-1"); s.Rules[0].Override == nil {
			t.Errorf("%s: %+v", when, s.Rules[0])
		}
	}
	held("at first")
	reloaded := func() int { return strings.Count(p.log(), "rules: reloaded") }
	change := func(limit string) {
		t.Helper()
		before := reloaded()
		publish(limit)
		await.Until(t, "the rules are read again", func() bool { return reloaded() > before })
	}
	change("other")
	change("orders")
	held("when the rule has gone and come back")
	_ = p.end(syscall.SIGKILL) // as a crash does
	p = begin()
	held("after a kill")
	_ = p.end(syscall.SIGKILL)
	site.CloseClientConnections()
	site.Close()
	p = begin()
	held("while the server of the rules is gone")
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
