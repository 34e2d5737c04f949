package main_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
	"github.com/stint-dev/stint/service/rules/rulescopy"
)

// killRounds is how often a process is killed; $STINT_SOAK asks for more.
func killRounds(few int) int {
	if os.Getenv("STINT_SOAK") != "" {
		return few * 50
	}
	return few
}

// An actor sets overrides of a server one after the other, each for the same
// keys in turn, with a number that grows, until the server is gone.
type actor struct {
	sent, acknowledged atomic.Int64
}

// keysKilled is how many keys an actor has.
const keysKilled = 7

func (a *actor) run(admin, token string) {
	client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
	defer client.CloseIdleConnections()
	for {
		n := a.sent.Add(1)
		r, err := http.NewRequest(http.MethodPut, fmt.Sprintf("%s/v1/override?rule=orders&key=k%d", admin, n%keysKilled),
			strings.NewReader(fmt.Sprintf(`{"limits":["%d per day"]}`, 1000+n)))
		if err != nil {
			return
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return
		}
		a.acknowledged.Store(n)
	}
}

// held compares the overrides in force with what was acknowledged: nothing of that is
// lost, and no more is there than the act that was under way.
func (a *actor) held(t *testing.T, p *running, round int) {
	t.Helper()
	acknowledged, sent := a.acknowledged.Load(), a.sent.Load()
	for n := max(1, acknowledged-keysKilled+1); n <= acknowledged; n++ {
		want := []string{fmt.Sprintf(`"limit":%d,`, 1000+n)}
		if sent > acknowledged && sent%keysKilled == n%keysKilled {
			want = append(want, fmt.Sprintf(`"limit":%d,`, 1000+sent))
		}
		await.Until(t, fmt.Sprintf("round %d: acknowledged up to %d, sent %d: k%d has one of %q", round, acknowledged, sent, n%keysKilled, want), func() bool {
			_, answer := p.ask("/v1/peek", fmt.Sprintf(`{"attributes":{"method":"GET","path":"/","header.x-api-key":"k%d"}}`, n%keysKilled), "")
			return slices.ContainsFunc(want, func(one string) bool { return strings.Contains(answer, one) })
		})
	}
}

const killedRules = `rules: [{name: orders, key: [header.x-api-key], limits: ["4/h"]}]`

// TestActsKilled kills a server again and again while operators set overrides and
// snapshots are saved: what was acknowledged is in force after the restart, and the
// files are whole.
func TestActsKilled(t *testing.T) {
	need.Time(t)
	dir := t.TempDir()
	rules := disk.Write(t, dir+"/stint.yaml", killedRules)
	database := "sqlite:" + dir + "/stint.db"
	token := published(t, database, killedRules, "operator")
	for name, args := range map[string][]string{
		"file":     {"-c", rules, "--state", dir + "/state", "--snapshot", dir + "/snapshot", "--snapshot-every", "100ms"},
		"database": {"--rules", database, "--snapshot", dir + "/snapshot-of-database", "--snapshot-every", "100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			var a actor
			shown := token
			if name == "file" {
				shown = "" // on this machine an operator needs none
			}
			for round := range killRounds(6) {
				p := operated(t, args...)
				a.held(t, p, round)
				a.sent.Store(a.acknowledged.Load()) // what was under way is sent again
				done := make(chan struct{})
				go func() { defer close(done); a.run(p.admin, shown) }()
				some := a.acknowledged.Load() + 4 // on a busy machine they take their time
				await.Until(t, "some are acknowledged", func() bool { return a.acknowledged.Load() >= some })
				time.Sleep(rand.N(250 * time.Millisecond)) // at any moment
				_ = p.end(syscall.SIGKILL)
				<-done
			}
			if a.acknowledged.Load() < 20 {
				t.Errorf("%d acts were acknowledged: that was no trial", a.acknowledged.Load())
			}
		})
	}
}

// TestCopyKilled kills a server again and again while it writes its last copy: the
// copy is the one before or the next, whole, never older than it was, and a server
// starts from it while the database is gone.
func TestCopyKilled(t *testing.T) {
	need.Time(t)
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
	for round := range killRounds(4) {
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
