package main_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/need"
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
		var answer string
		ok := false
		for until := time.Now().Add(patience); !ok && time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			_, answer = p.call(http.MethodPost, p.front+"/v1/peek", fmt.Sprintf(`{"attributes":{"method":"GET","path":"/","header.x-api-key":"k%d"}}`, n%keysKilled), nil)
			for _, one := range want {
				ok = ok || strings.Contains(answer, one)
			}
		}
		if !ok {
			t.Fatalf("round %d: acknowledged up to %d, sent %d: k%d has %s, want %q", round, acknowledged, sent, n%keysKilled, answer, want)
		}
	}
}

// TestActsKilled kills a server again and again while operators set overrides and
// snapshots are saved: what was acknowledged is in force after the restart, and the
// files are whole.
func TestActsKilled(t *testing.T) {
	need.Time(t)
	dir := t.TempDir()
	rules := writeFile(t, dir+"/stint.yaml", `rules: [{name: orders, key: [header.x-api-key], limits: ["4/h"]}]`)
	database := "sqlite:" + dir + "/stint.db"
	must(t, "rules", "push", rules, "--rules", database)
	token := must(t, "token", "make", "pager", "--role", "operator", "--rules", database)
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
