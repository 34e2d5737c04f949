package main_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
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
	if testing.Short() {
		t.Skip("slow")
	}
	dir := t.TempDir()
	rules := writeFile(t, dir+"/stint.yaml", `rules: [{name: orders, key: [header.x-api-key], limits: ["4/h"]}]`)
	database := "sqlite:" + dir + "/stint.db"
	must(t, "rules", "migrate", "--rules", database)
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
				p := launch(t, "serve", append([]string{"serve", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
				p.listening()
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

// TestPushKilled kills stint rules push at any moment: the database has the revision
// or not, whole, with its audit, never less than what was said; and the next push
// needs no repair.
func TestPushKilled(t *testing.T) {
	dir := t.TempDir()
	database := "sqlite:" + dir + "/stint.db"
	must(t, "rules", "migrate", "--rules", database)
	document := func(n int) string {
		return fmt.Sprintf("rules: [{name: orders, key: [header.x-api-key], limits: [\"%d/h\"]}]\n# %s\n", n+1, strings.Repeat("x", 200_000))
	}
	must(t, "rules", "push", writeFile(t, dir+"/stint.yaml", document(0)), "--rules", database)
	db := dbtest.Open(t, database, rulesdb.Options{})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	last, took := int64(1), 500*time.Millisecond
	for round := range killRounds(10) {
		writeFile(t, dir+"/stint.yaml", document(round+1))
		push := exec.Command(self, "rules", "push", dir+"/stint.yaml", "--rules", database)
		push.Env = append(os.Environ(), "STINT_TEST_MAIN=1")
		var said bytes.Buffer
		push.Stdout, push.Stderr = &said, &said
		begun := time.Now()
		if err := push.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(rand.N(took*3/2), func() { _ = push.Process.Kill() })
		pushed := push.Wait() == nil
		if kill.Stop(); pushed {
			took = time.Since(begun) // so that kills fall into it
		}
		r, err := db.Revision(t.Context(), 0)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		switch {
		case pushed && r.Number != last+1, r.Number != last && r.Number != last+1:
			t.Errorf("round %d: revision %d after %d; pushed: %v\n%s", round, r.Number, last, pushed, said.String())
		case r.Number == last+1 && string(r.Document) != document(round+1):
			t.Errorf("round %d: revision %d is not what was pushed", round, r.Number)
		}
		audit, err := db.Audit(t.Context(), 0, 1000)
		if err != nil || int64(len(audit)) < r.Number {
			t.Errorf("round %d: revision %d, and %d acts in the audit: %v", round, r.Number, len(audit), err)
		}
		last = r.Number
	}
	writeFile(t, dir+"/stint.yaml", document(1_000_000))
	must(t, "rules", "push", dir+"/stint.yaml", "--rules", database)
	t.Logf("%d of %d pushes were whole", last-1, killRounds(10))
}
