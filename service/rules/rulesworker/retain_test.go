package rulesworker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"

	"github.com/stint-dev/stint/service/rules/rulesworker"
)

// A said is a log that may be read while it is written.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

// TestRetain lets several processes prune: what is old goes by itself, one does
// it, and the audit says who.
func TestRetain(t *testing.T) {
	url := dbtest.PostgresURL(t)
	db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
	for i := range 9 {
		if _, err := db.Publish(t.Context(), int64(i), rulesdb.Revision{Author: "anna", Name: "stint.yaml", Document: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
	}
	dbtest.Exec(t, url, "UPDATE stint_audit SET created = created - 366 * 24 * 3600 * 1000000::bigint")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log said
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			(&rulesworker.Retainer{
				From: db, Name: fmt.Sprint("node ", i), Every: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil)),
				Keep: rulesdb.Retention{Revisions: 2, Older: 365 * 24 * time.Hour},
			}).Run(ctx)
		})
	}
	await.Until(t, "what is old is gone", func() bool { return log.has(`removed from the database" what="7 revisions, 9 acts"`) })
	stop()
	all.Wait()
	acts, err := db.Audit(t.Context(), 0, 10)
	if err != nil || len(acts) != 1 || acts[0].Act.Act != "prune" || !strings.HasPrefix(acts[0].Author, "node ") {
		t.Errorf("the audit: %+v, %v", acts, err)
	}
	left, err := db.Revisions(t.Context(), 0, 10)
	if err != nil || len(left) != 2 || left[0].Number != 9 {
		t.Errorf("revisions: %+v, %v", left, err)
	}
}

// TestRetainRefuses lets one prune whose database has a clock that is two years
// ahead, and one whose user may only read: nothing is removed, and both say why,
// once.
func TestRetainRefuses(t *testing.T) {
	url := dbtest.PostgresURL(t)
	db := dbtest.OpenMigrated(t, url, rulesdb.Options{})
	if _, err := db.Publish(t.Context(), 0, rulesdb.Revision{Author: "anna", Name: "stint.yaml", Document: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, url, "CREATE SCHEMA fake",
		"CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp() + interval ''2 years'''",
		"CREATE USER reader", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
	for what, one := range map[string]struct{ url, want string }{
		"a clock that is set":   {url + "&options=-csearch_path%3Dfake,pg_catalog,public", "clock is 17"},
		"a user who only reads": {strings.Replace(url, "stint@", "reader@", 1), "permission denied"},
	} {
		from, err := rulesdb.Open(one.url, rulesdb.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var log said
		done := make(chan struct{})
		go func() {
			defer close(done)
			(&rulesworker.Retainer{From: from, Name: what, Every: 20 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil)), Keep: rulesdb.Retention{Revisions: 1, Older: time.Hour}}).Run(ctx)
		}()
		await.Until(t, what, func() bool { return log.has(one.want) })
		time.Sleep(100 * time.Millisecond)
		stop()
		<-done
		from.Close()
		if n := strings.Count(log.text.String(), "\n"); n > 2 { // the clock's difference is rounded, and may be on an edge
			t.Errorf("%s: %d lines:\n%s", what, n, log.text.String())
		}
	}
	if acts, err := db.Audit(t.Context(), 0, 10); err != nil || len(acts) != 1 {
		t.Errorf("the audit: %+v, %v", acts, err)
	}
}
