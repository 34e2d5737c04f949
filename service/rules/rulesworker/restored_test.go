package rulesworker_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules/rulesworker"
)

// running starts a worker in this process, and returns what stops it.
func running(t *testing.T, db *rulesdb.DB, to string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done, target := make(chan struct{}), mustTarget(to)
	go func() {
		defer close(done)
		rulesworker.New(rulesworker.Options{From: db, To: target, Name: "w", Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	stop = func() { cancel(); <-done; target.Close() }
	t.Cleanup(stop)
	return stop
}

// TestRestoredUnseen restores a database and changes it while no worker runs, to the
// numbers that are published, or beyond. The worker publishes nothing of it and says
// so, until that is accepted: then everything, and nothing of what was lost.
func TestRestoredUnseen(t *testing.T) {
	need.Time(t)
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "rules.db") },
		"postgres": func(t *testing.T) string { return dbtest.PostgresURL(t) },
	} {
		for _, beyond := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s, %d beyond", name, beyond), func(t *testing.T) {
				each(t, func(t *testing.T, to string) { restoredUnseen(t, url(t), to, beyond) })
			})
		}
	}
}

func restoredUnseen(t *testing.T, url, to string, beyond int) {
	db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
	publish(t, db, "one")
	set(t, db, "a", "1/m")
	restore := dbtest.Backup(t, url)
	publish(t, db, "two")
	set(t, db, "b", "2/m")
	stop := running(t, db, to)
	r := &reader{from: source(t, to)}
	r.until(t, "all", func() bool { return r.document == "two" && len(r.overrides) == 2 })
	stop()
	restore()
	publish(t, db, "another two")
	set(t, db, "c", "3/m")
	for i := range beyond {
		set(t, db, "d", fmt.Sprintf("%d/m", 4+i))
	}
	running(t, db, to)
	await.Until(t, "the alarm", func() bool {
		nodes, err := db.Nodes(t.Context(), time.Hour)
		return err == nil && len(nodes) == 1 && strings.Contains(nodes[0].Error, "stint rules accept")
	})
	late := &reader{from: source(t, to)}
	late.until(t, "what is published", func() bool { return late.held != rulesource.Version{} })
	if late.document != "two" || late.overrides["b"] != "2/m" || len(late.overrides) != 2 {
		t.Errorf("published before it is accepted: %q, %v", late.document, late.overrides)
	}
	if err := db.Accept(t.Context(), "anna", "restored on purpose"); err != nil {
		t.Fatal(err)
	}
	r.until(t, "what is accepted", func() bool { return r.document == "another two" })
	if want := 2 + min(1, beyond); len(r.overrides) != want || r.overrides["b"] != "" || r.overrides["c"] != "3/m" {
		t.Errorf("accepted: %v", r.overrides)
	}
}

// TestFallenBack takes a Redis back to an earlier state, as when a replica that was
// behind takes over. The worker publishes what is missing, and a node that had it
// misses nothing of what follows.
func TestFallenBack(t *testing.T) {
	to := redistest.Start(t).URL()
	client := redis.NewClient(&redis.Options{Addr: strings.TrimPrefix(to, "redis://")})
	defer client.Close()
	redis := func(args ...any) *redis.Cmd {
		t.Helper()
		r := client.Do(t.Context(), args...)
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		return r
	}
	db := dbtest.OpenMigrated(t, "sqlite:"+filepath.Join(t.TempDir(), "rules.db"), rulesdb.Options{})
	target := mustTarget(to)
	put := func() {
		t.Helper()
		if err := hand(t, db, target).Publish(); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, db, "one")
	for _, key := range []string{"a", "b"} {
		set(t, db, key, "1/m")
		put()
	}
	const head, lists = "stint:{rules}:head", "stint:{rules}:list:*"
	was, _ := redis("GET", head).Text()
	list, _ := redis("KEYS", lists).StringSlice()
	blocks, _ := redis("LLEN", list[0]).Int64()
	set(t, db, "c", "1/m")
	put()
	r := &reader{from: source(t, to)}
	r.until(t, "all three", func() bool { return len(r.overrides) == 3 })
	redis("SET", head, was)
	redis("LTRIM", list[0], "0", fmt.Sprint(blocks-1))
	set(t, db, "d", "1/m")
	put() // two changes in as many blocks as one had
	for begun := time.Now(); len(r.overrides) != 4; {
		if err := r.next(t.Context()); err != nil {
			t.Log(err) // it begins anew
		}
		if time.Since(begun) > patience {
			t.Fatal("the node never has what it missed")
		}
		if r.held.Change == 4 && len(r.overrides) != 4 {
			t.Fatalf("at change %d it holds %v", r.held.Change, r.overrides)
		}
	}
}
