package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules/rulescopy"
)

// TestCopyKilled kills a server again and again while it writes its last copy: the
// copy is the one before or the next, whole, never older than it was, and a server
// starts from it while the database is gone.
func TestCopyKilled(t *testing.T) {
	need.Time(t)
	rounds := 4
	if os.Getenv("STINT_SOAK") != "" {
		rounds = 200
	}
	dir := t.TempDir()
	rules, copy := "sqlite:"+filepath.Join(dir, "rules.db"), filepath.Join(dir, "last.copy")
	db := dbtest.Open(t, rules, rulesdb.Options{})
	if err := setAll(t.Context(), db, 1); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for k := 2; ctx.Err() == nil; k++ {
			if err := setAll(ctx, db, k); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	defer func() { stop(); writer.Wait() }()
	last := 0
	for round := range rounds {
		s := startServe(t, "--rules", rules, "--rules-copy", copy, "--node", "n", "--http", "127.0.0.1:0")
		time.Sleep(rand.N(300 * time.Millisecond)) // at any moment
		_ = s.end(syscall.SIGKILL)
		held := &wholeCopy{t: t, limits: make(map[string]string)}
		if _, err := rulescopy.NewFile(copy).Load(t.Context(), rulesource.Version{}, held); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		k := held.check()
		if k < last {
			t.Errorf("round %d: the copy is of %d, and was of %d", round, k, last)
		}
		last = k
		t.Logf("round %d: %d", round, k)
		s = startServe(t, "--rules", "postgres://stint@127.0.0.1:1/none?sslmode=disable", "--rules-copy", copy, "--node", "n", "--http", "127.0.0.1:0")
		for _, key := range []int{0, customersKilled - 1} {
			_, answer := s.ask("/v1/peek", fmt.Sprintf(`{"attributes":{"header.x-api-key":"%d"}}`, key), "")
			if !strings.Contains(answer, fmt.Sprintf(`"limit":%d,`, k)) {
				t.Errorf("round %d: started from the copy of %d, customer %d has %s", round, k, key, answer)
			}
		}
		_ = s.end(syscall.SIGKILL)
	}
}

// customersKilled is how many customers each version has.
const customersKilled = 2000

// setAll gives the rule and, in one change, all customers k requests per minute;
// the rule is published first.
func setAll(ctx context.Context, db *rulesdb.DB, k int) error {
	_, err := db.Publish(ctx, rulesdb.AnyVersion, rulesdb.Revision{Name: "stint.yaml", Document: fmt.Appendf(nil, "rules: [{name: api, key: [header.x-api-key], limits: [%d/m]}]\n", k)})
	all := make([]rulesource.Override, customersKilled)
	for i := range all {
		all[i] = rulesource.Override{Rule: "api", Key: fmt.Sprint(i), Limits: []string{fmt.Sprintf("%d/m", k)}}
	}
	if err == nil {
		_, err = db.LoadOverrides(ctx, "test", dbtest.All(all), nil)
	}
	return err
}

// A wholeCopy is what a copy holds.
type wholeCopy struct {
	t      *testing.T
	rule   string
	limits map[string]string
}

func (c *wholeCopy) Begin(s *rulesource.Snapshot, whole bool) error {
	if !whole {
		c.t.Error("changes behind nothing")
	}
	c.rule = string(s.Document)
	return nil
}

func (c *wholeCopy) Override(o *rulesource.Override) error {
	c.limits[o.Key] = strings.Join(o.Limits, ",")
	return nil
}

func (c *wholeCopy) Plan(*rulesource.Plan) error { return nil }

// check holds the copy to be of one version, and returns its k.
func (c *wholeCopy) check() (k int) {
	c.t.Helper()
	if _, err := fmt.Sscanf(c.limits["0"], "%d/m", &k); err != nil || len(c.limits) != customersKilled {
		c.t.Fatalf("%d customers, the first has %q", len(c.limits), c.limits["0"])
	}
	for key, limit := range c.limits {
		if limit != c.limits["0"] {
			c.t.Fatalf("half a version: 0 has %s and %s has %s", c.limits["0"], key, limit)
		}
	}
	if at, next := fmt.Sprintf("[%d/m]", k), fmt.Sprintf("[%d/m]", k+1); !strings.Contains(c.rule, at) && !strings.Contains(c.rule, next) {
		c.t.Fatalf("customers are of %d, the rule is %s", k, c.rule)
	}
	return k
}
