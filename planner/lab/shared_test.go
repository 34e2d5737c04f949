package lab_test

import (
	"context"
	"go/format"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint/internal/redistest"

	"github.com/stint-dev/stint/planner/lab"
)

// connect returns a client of a new server, which nothing is left in at the end.
func connect(t testing.TB) rueidis.Client {
	t.Helper()
	server := redistest.Start(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := client.Do(context.Background(), client.B().Dbsize().Build()).AsInt64(); err != nil || left > 0 {
			t.Errorf("%d keys are left: %v", left, err)
		}
		client.Close()
	})
	return client
}

// several asks for a limit on four processes.
func several(t *testing.T, redis rueidis.Client, limit string, n lab.Nodes, why *lab.Place) *lab.Answer {
	t.Helper()
	n.Count = 4
	return simulate(t, &lab.Request{Redis: redis, Limits: []string{limit}, Arrivals: lab.Arrivals{Shape: "steady", Rate: "1500/s"}, Horizon: "6s", Nodes: &n, Why: why})
}

// Several processes stand beside one: a row for each mode, on the same arrivals,
// and none lets more through than the modes promise.
func TestShared(t *testing.T) {
	redis := connect(t)
	a := several(t, redis, "1000/s burst 400", lab.Nodes{}, nil)
	if len(a.Rows) != 5 {
		t.Fatalf("%d rows, want one and four", len(a.Rows))
	}
	one := a.Rows[0]
	for i, mode := range []string{"strict", "lease", "async", "share"} {
		row := a.Rows[i+1]
		if row.Shared == nil || row.Shared.Mode != mode || row.Shared.Nodes != 4 || row.Shared.Strictly || row.Requests != one.Requests || len(row.Each.Node) != row.Requests {
			t.Fatalf("row %d: %+v of %d requests", i+1, row.Shared, row.Requests)
		}
		over := map[string]int64{"async": 4 * 4, "share": 4}[mode]
		if row.Most > one.Promised+over || row.Passed < one.Passed*95/100 || row.Passed > one.Passed+int(over) {
			t.Errorf("%s: %d passed, at most %d in a second; one process: %d and %d", mode, row.Passed, row.Most, one.Passed, one.Most)
		}
		if asked := row.Shared.Calls; (mode == "share") != (asked == 0) || mode == "lease" && asked*3 > int64(row.Requests) {
			t.Errorf("%s: Redis asked %d times", mode, asked)
		}
	}
	if strict := a.Rows[1]; strict.Passed != one.Passed || strict.Each.Verdicts != one.Each.Verdicts {
		t.Errorf("strictly %d passed, with one process %d", strict.Passed, one.Passed)
	}
	for _, row := range several(t, redis, "10/s", lab.Nodes{Modes: []string{"lease", "async"}}, nil).Rows[1:] {
		if row.Shared.Strictly != (row.Shared.Mode == "lease") {
			t.Errorf("10/s by %s: strictly is %v", row.Shared.Mode, row.Shared.Strictly)
		}
	}
}

// A simulation whose caller leaves, at any moment, leaves nothing in Redis.
func TestSharedLeft(t *testing.T) {
	redis := connect(t)
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(100*time.Millisecond))
		_, _ = lab.Simulate(ctx, &lab.Request{
			Redis: redis, Limits: []string{"1000/s burst 400"}, Arrivals: lab.Arrivals{Shape: "steady", Rate: "1500/s"},
			Horizon: "6s", Nodes: &lab.Nodes{Count: 4, Modes: []string{"strict", "async"}},
		})
		cancel()
	}
}

// Without a Redis, memory stands in for it where that answers alike: strictly and by
// shares, there and away.
func TestSharedInMemory(t *testing.T) {
	redis := connect(t)
	for _, n := range []lab.Nodes{{}, {AwayFrom: "2s", AwayFor: "2s"}, {Skew: "300ms"}} {
		n.Modes = []string{"strict", "share"}
		memory, real := several(t, nil, "1000/s burst 400", n, nil), several(t, redis, "1000/s burst 400", n, nil)
		for i := 1; i <= 2; i++ {
			if m, r := memory.Rows[i], real.Rows[i]; m.Each.Verdicts != r.Each.Verdicts || m.Shared.Calls != r.Shared.Calls {
				t.Errorf("%+v: in memory %d passed after %d calls; on a Redis %d after %d", m.Shared, m.Passed, m.Shared.Calls, r.Passed, r.Shared.Calls)
			}
		}
	}
	if a := several(t, nil, "1000/s burst 400", lab.Nodes{}, nil); len(a.Rows) != 3 {
		t.Errorf("%d rows without a Redis", len(a.Rows))
	}
	_, err := lab.Simulate(t.Context(), &lab.Request{Limits: []string{"10/s"}, Arrivals: lab.Arrivals{Shape: "steady", Rate: "10/s"}, Horizon: "1s", Nodes: &lab.Nodes{Count: 2, Modes: []string{"lease"}}})
	if err == nil || !strings.Contains(err.Error(), "stint lab --store") {
		t.Errorf("lease without a Redis: %v", err)
	}
}

// While Redis is away each process holds its part, and says so.
func TestSharedAway(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	away := lab.Nodes{AwayFrom: "2s", AwayFor: "2s"}
	redis := connect(t)
	there := several(t, redis, "1000/s burst 400", lab.Nodes{}, nil)
	gone := several(t, redis, "1000/s burst 400", away, nil)
	for i := 1; i <= 4; i++ {
		if share := gone.Rows[i].Shared.Mode == "share"; share != (gone.Rows[i].Shared.Calls == there.Rows[i].Shared.Calls) || gone.Rows[i].Shared.AwayTo != 4e9 {
			t.Errorf("%+v; with Redis there %d calls", gone.Rows[i].Shared, there.Rows[i].Shared.Calls)
		}
	}
	words := map[string]string{"strict": "Redis is away", "lease": "spends what it has in hand", "async": "the last sum", "share": "no process asks Redis"}
	for i := 1; i <= 4; i++ {
		row := gone.Rows[i]
		at := slices.IndexFunc(gone.At, func(at int64) bool { return at >= 3e9 })
		for at < row.Requests && row.Each.Verdicts[at] != 'd' {
			at++
		}
		if at == row.Requests {
			t.Fatalf("%s denies nothing", row.Shared.Mode)
		}
		alone := away // the others need not be played again
		alone.Modes = []string{row.Shared.Mode}
		w := several(t, redis, "1000/s burst 400", alone, &lab.Place{Limit: 1, Request: at}).Why
		if w.Verdict != "denied" || !strings.Contains(strings.Join(w.Words, " "), words[row.Shared.Mode]) {
			t.Errorf("%s: %s: %q", row.Shared.Mode, w.Verdict, w.Words)
		}
	}
	w := several(t, redis, "1000/s burst 400", lab.Nodes{Skew: "300ms", Modes: []string{"share"}}, &lab.Place{Limit: 1, Request: 3}).Why
	if text := strings.Join(w.Words, " "); !strings.Contains(text, "Process 4 of 4 decided") || !strings.Contains(text, "300ms ahead") {
		t.Errorf("%q", text)
	}
}

// What is wrong with the processes is said beside them.
func TestSharedErrors(t *testing.T) {
	for _, c := range []struct {
		n    lab.Nodes
		rate string
		want string
	}{
		{lab.Nodes{Count: 1}, "10/s", "nodes.count: 1, want from 2 to 100"},
		{lab.Nodes{Count: 101}, "10/s", "nodes.count: 101"},
		{lab.Nodes{Count: 2, Modes: []string{"share", "share"}}, "10/s", `nodes.modes: "share"`},
		{lab.Nodes{Count: 2, Modes: []string{"loose"}}, "10/s", `nodes.modes: "loose": each of strict, lease, async, share`},
		{lab.Nodes{Count: 2, AwayFrom: "soon"}, "10/s", "nodes.away_from: "},
		{lab.Nodes{Count: 2, AwayFor: "-1s"}, "10/s", "nodes.away_for: "},
		{lab.Nodes{Count: 2, Skew: "x"}, "10/s", "nodes.skew: "},
		{lab.Nodes{Count: 2}, "5000/s", "nodes: 30000 requests are too many"},
	} {
		_, err := lab.Simulate(t.Context(), &lab.Request{Limits: []string{"10/s"}, Arrivals: lab.Arrivals{Shape: "steady", Rate: c.rate}, Horizon: "6s", Nodes: &c.n})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %q", c.n, err, c.want)
		}
	}
}

// What is copied of a row of several processes is held by several.
func TestSharedCopy(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	redis := connect(t)
	const bucket, flying = "1000/s burst 400", "4 in flight"
	for _, row := range []struct {
		limit string
		which int
		mode  string // in the rule
		flags string // of the command
	}{
		{bucket, 1, "", "--nodes 3 --mode strict\n"},
		{bucket, 2, "    mode: lease\n", "--nodes 3 --mode lease --store"},
		{bucket, 3, "    mode: async\n", "--nodes 3 --mode async --store"},
		{bucket, 4, "    mode: share\n", "--nodes 3 --mode share\n"},
		{flying, 1, "", "--lasts 1s \\\n    --limit '4 in flight' --nodes 3 --mode strict\n"},
	} {
		r := &lab.Request{
			Redis: redis, Limits: []string{row.limit}, Arrivals: lab.Arrivals{Shape: "text", Text: "900@300/s"}, Lasts: "1s", Nodes: &lab.Nodes{Count: 3}, Copy: &row.which,
		}
		c := simulate(t, r).Copy
		if strings.Contains(c.Rule, "mode:") != (row.mode != "") || !strings.Contains(c.Rule, row.mode) || !strings.Contains(c.Simulate, row.flags) {
			t.Errorf("%d:\n%s%s", row.which, c.Rule, c.Simulate)
		}
		if formatted, err := format.Source([]byte(c.Go)); err != nil || string(formatted) != c.Go {
			t.Errorf("not as gofmt has it (%v):\n%s", err, c.Go)
		}
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, []byte(c.Go), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
			t.Errorf("%v: %s\n%s", err, out, c.Go)
		}
		r.Nodes.Skew = "1s"
		if c := simulate(t, r).Copy; !strings.HasPrefix(c.Simulate, "#") {
			t.Errorf("a command that shows no skew: %s", c.Simulate)
		}
	}
}
