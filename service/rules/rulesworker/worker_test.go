package rulesworker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules/rulesredis"
	"github.com/stint-dev/stint/service/rules/rulesworker"
)

// patience is how long a test waits for what takes seconds on a machine that has
// nothing else to do.
const patience = 5 * time.Minute

// TestMain runs the tests; with arguments in the environment it is a worker, for
// tests that kill one.
func TestMain(m *testing.M) {
	if text := os.Getenv("WORKER"); text != "" {
		from, rest, _ := strings.Cut(text, " ")
		to, name, _ := strings.Cut(rest, " ")
		work(from, to, name)
		return
	}
	os.Exit(dbtest.Main(m))
}

// work is a worker of a test until it is killed.
func work(from, to, name string) {
	db, err := rulesdb.Open(from, rulesdb.Options{Node: name, Poll: 100 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	rulesworker.New(rulesworker.Options{From: db, To: mustTarget(to), Name: name, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}).Run(context.Background())
}

func mustTarget(to string) rulesworker.Target {
	if !strings.HasPrefix(to, "redis:") {
		return rulesworker.Directory(to)
	}
	server, err := rulesredis.Open(to, "")
	if err != nil {
		panic(err)
	}
	return rulesworker.Redis(server)
}

// process starts a worker as a process of its own.
func process(t *testing.T, from, to, name string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "WORKER="+from+" "+to+" "+name)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log strings.Builder
	c.Stderr = &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have been killed
		_ = c.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return c
}

func publish(t *testing.T, db *rulesdb.DB, text string) rulesdb.Revision {
	t.Helper()
	r, err := db.Publish(t.Context(), rulesdb.AnyVersion, rulesdb.Revision{Name: "stint.yaml", Document: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func set(t *testing.T, db *rulesdb.DB, key string, limits ...string) {
	t.Helper()
	if _, _, err := db.SetOverride(t.Context(), rulesource.Override{Rule: "api", Key: key, Limits: limits, Removed: limits == nil}, 0); err != nil {
		t.Fatal(err)
	}
}

// hand gives a target what it lacks, to be published.
func hand(t *testing.T, db *rulesdb.DB, to rulesworker.Target) rulesworker.Publication {
	t.Helper()
	p, err := to.New(t.Context())
	if err == nil {
		_, err = db.Load(t.Context(), p.Held(), p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A reader holds what it has read. It is a [rulesource.Receiver].
type reader struct {
	from      rulesource.Source
	held      rulesource.Version
	document  string
	overrides map[string]string // limits by key
	plans     map[string]string
	whole     int // times that all was read
}

func (r *reader) Begin(s *rulesource.Snapshot, whole bool) error {
	if whole {
		r.overrides, r.plans = make(map[string]string), make(map[string]string)
		r.whole++
	}
	if s.Document != nil {
		r.document = string(s.Document)
	}
	return nil
}

func (r *reader) Override(o *rulesource.Override) error {
	delete(r.overrides, o.Key)
	if !o.Removed {
		r.overrides[o.Key] = strings.Join(o.Limits, ",")
	}
	return nil
}

func (r *reader) Plan(p *rulesource.Plan) error { r.plans[p.Value] = p.Plan; return nil }

// next reads the next version, and holds it to be none before.
func (r *reader) next(ctx context.Context) error {
	if err := r.from.Wait(ctx, r.held); err != nil {
		return err
	}
	s, err := r.from.Load(ctx, r.held, r)
	if errors.Is(err, rulesource.ErrEmpty) {
		return nil
	}
	if err != nil { // all of it, or nothing
		r.held = rulesource.Version{}
		clear(r.overrides)
		clear(r.plans)
		return err
	}
	if !s.Version.Follows(r.held) {
		return fmt.Errorf("version %+v after %+v", s.Version, r.held)
	}
	r.held = s.Version
	return nil
}

// until reads until something holds.
func (r *reader) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	for !ok() {
		if err := r.next(ctx); err != nil {
			t.Fatalf("until %s: %v", what, err)
		}
	}
}

// source returns what nodes read from a target.
func source(t *testing.T, to string) rulesource.Source {
	t.Helper()
	if !strings.HasPrefix(to, "redis:") {
		return rulesworker.Published(to)
	}
	s, err := rulesredis.Open(to, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// each runs a test with a target of each kind.
func each(t *testing.T, test func(t *testing.T, to string)) {
	t.Run("redis", func(t *testing.T) { test(t, redistest.Start(t).URL()) })
	t.Run("directory", func(t *testing.T) { test(t, filepath.Join(t.TempDir(), "rules")) })
}

// TestWorker publishes rules, overrides and plans, and changes of them.
func TestWorker(t *testing.T) {
	each(t, func(t *testing.T, to string) {
		url := dbtest.PostgresURL(t)
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		process(t, url, to, "w1")
		r := &reader{from: source(t, to)}
		publish(t, db, "one")
		r.until(t, "the first rules", func() bool { return r.document == "one" })
		hostile := "a'; DROP TABLE x; --\x00\xff\n"
		set(t, db, hostile, "5/m", "9/h")
		set(t, db, "b", "6/m")
		if _, err := db.SetPlan(t.Context(), "org", "acme\xff", "pro", "anna", ""); err != nil {
			t.Fatal(err)
		}
		publish(t, db, "two")
		r.until(t, "two", func() bool {
			return r.document == "two" && r.overrides[hostile] == "5/m,9/h" && r.overrides["b"] == "6/m" && r.plans["acme\xff"] == "pro"
		})
		set(t, db, "b")
		r.until(t, "the removal", func() bool { return len(r.overrides) == 1 })
		if r.whole > 1 && strings.HasPrefix(to, "redis:") { // a file is read whole each time
			t.Errorf("all was read %d times", r.whole)
		}
		late := &reader{from: source(t, to)}
		late.until(t, "the newest", func() bool { return late.held == r.held })
		if late.document != "two" || len(late.overrides) != 1 || late.overrides[hostile] != "5/m,9/h" || late.plans["acme\xff"] != "pro" {
			t.Errorf("who comes later has %q, %q, %q", late.document, late.overrides, late.plans)
		}
	})
}

// TestTakeover kills the worker that leads while it publishes, again and again:
// another one goes on, and readers have each version whole and none twice.
func TestTakeover(t *testing.T) {
	need.Time(t)
	each(t, func(t *testing.T, to string) {
		url := dbtest.PostgresURL(t)
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		publish(t, db, "rules")
		const customers = 3000
		set := func(k int) {
			t.Helper()
			all := make([]rulesource.Override, customers)
			for i := range all {
				all[i] = rulesource.Override{Rule: "api", Key: fmt.Sprint(i), Limits: []string{fmt.Sprintf("%d/m", k)}}
			}
			if _, err := db.LoadOverrides(t.Context(), "ci", dbtest.All(all), nil); err != nil {
				t.Fatal(err)
			}
		}
		workers := []*exec.Cmd{process(t, url, to, "w0"), process(t, url, to, "w1")}
		r := &reader{from: source(t, to)}
		ctx, stop := context.WithTimeout(t.Context(), 2*patience)
		defer stop()
		rounds := 3
		if os.Getenv("STINT_SOAK") != "" {
			rounds = 40
		}
		for k := 1; k <= rounds; k++ {
			set(k)
			time.Sleep(time.Duration(k%5) * 3 * time.Millisecond) // it publishes
			began := time.Now()
			if k%2 == 1 { // whichever leads
				for i, w := range workers {
					_ = w.Process.Kill()
					_ = w.Wait()
					workers[i] = process(t, url, to, fmt.Sprintf("w%d-%d", i, k))
				}
			}
			for r.overrides["0"] != fmt.Sprintf("%d/m", k) {
				if err := r.next(ctx); err != nil {
					t.Logf("round %d: %v", k, err) // it begins anew
					if ctx.Err() != nil {
						t.Fatal("the last version never came")
					}
				}
				for key, text := range r.overrides {
					if text != r.overrides["0"] || len(r.overrides) != customers {
						t.Fatalf("half a version: %d customers, %s has %s and 0 has %s", len(r.overrides), key, text, r.overrides["0"])
					}
				}
			}
			t.Logf("round %d: published after %v", k, time.Since(began).Round(time.Millisecond))
		}
	})
}

// TestStopped stops the worker that leads as a machine that hangs does: another
// takes over, and the first publishes nothing older when it goes on.
func TestStopped(t *testing.T) {
	need.Time(t)
	each(t, func(t *testing.T, to string) {
		url := dbtest.PostgresURL(t)
		db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
		publish(t, db, "0")
		first := process(t, url, to, "w0")
		r := &reader{from: source(t, to)}
		r.until(t, "the first", func() bool { return r.document == "0" })
		if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		stopped := time.Now()
		process(t, url, to, "w1")
		publish(t, db, "1")
		r.until(t, "that of the second worker", func() bool { return r.document == "1" })
		t.Logf("another worker took over within %v", time.Since(stopped).Round(time.Millisecond))
		if err := first.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for i := 2; i < 20; i++ {
			text := fmt.Sprint(i)
			publish(t, db, text)
			r.until(t, text, func() bool { return r.document == text }) // next fails for what is older
		}
	})
}

// TestSucceeded has a publication that began before another one: it is refused.
func TestSucceeded(t *testing.T) {
	each(t, func(t *testing.T, to string) {
		db := dbtest.OpenMigrated(t, "sqlite:"+filepath.Join(t.TempDir(), "a.db"), rulesdb.Options{})
		a, b := mustTarget(to), mustTarget(to)
		publish(t, db, "one")
		late := hand(t, db, a)
		publish(t, db, "two")
		if err := hand(t, db, b).Publish(); err != nil {
			t.Fatal(err)
		}
		err := late.Publish()
		if strings.HasPrefix(to, "redis:") && !errors.Is(err, rulesredis.ErrSucceeded) {
			t.Errorf("an older version was published: %v", err)
		}
		r := &reader{from: source(t, to)}
		r.until(t, "a version", func() bool { return r.document != "" })
		if r.document != "two" {
			t.Errorf("%q is held", r.document)
		}
	})
}

// TestLost takes away what was published: it is published anew.
func TestLost(t *testing.T) {
	server := redistest.Start(t)
	url := dbtest.PostgresURL(t)
	db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
	publish(t, db, "one")
	process(t, url, server.URL(), "w0")
	r := &reader{from: source(t, server.URL())}
	r.until(t, "the first", func() bool { return r.document == "one" })
	server.Kill()
	server.Restart(t)
	again := &reader{from: source(t, server.URL())}
	again.until(t, "the first, again", func() bool { return again.document == "one" })
}
