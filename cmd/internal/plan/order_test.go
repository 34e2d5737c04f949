package plan_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/cmd/internal/plan"
)

func csv(rows ...string) []byte {
	return []byte("time,ip,path,user\n" + strings.Join(rows, "\n") + "\n")
}

// Lines are put in order within the window, and no further.
func TestReorder(t *testing.T) {
	log := csv(
		"2024-01-01T00:00:10Z,a,/,u", "2024-01-01T00:00:00Z,b,/,u", "2024-01-01T00:00:05Z,c,/,u",
		"2024-01-01T00:02:00Z,d,/,u", "2024-01-01T00:05:00Z,e,/,u", "2024-01-01T00:01:00Z,f,/,u",
	)
	for _, test := range []struct {
		window           time.Duration
		reordered, moved int64
	}{{0, 2, 1}, {time.Hour, 3, 0}, {-1, 0, 3}, {5 * time.Second, 1, 2}} {
		r := planText(t, log, plan.Options{Reorder: test.window, Limits: []string{"1/h"}})
		// The lines of one block are put in order whatever the window.
		if got := r.Log.Reordered + r.Log.Moved; got != 3 {
			t.Errorf("window %v: %d late, want 3", test.window, got)
		}
		if r.Log.Requests != 6 {
			t.Errorf("window %v: %d requests", test.window, r.Log.Requests)
		}
	}
}

// Which lines count, and whose they are.
func TestQuestion(t *testing.T) {
	log := csv(
		"2024-01-01T00:00:00Z,192.0.2.1,/api/a,ann", "2024-01-01T00:00:01Z,192.0.2.1,/api/b,", "2024-01-01T00:00:02Z,192.0.2.2,/,bob",
		"2024-01-01T00:00:03Z,2001:db8::1,/api/a,ann", "2024-01-01T00:00:04Z,2001:db8::ffff:2,/api/%2e%2e/x,ann",
		"2024-01-01T00:00:05Z,::ffff:192.0.2.1,/API,bob",
	)
	day := func(text string) time.Time {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, test := range []struct {
		name     string
		o        plan.Options
		requests int64
		clients  int64
		heaviest string
	}{
		{"by address", plan.Options{}, 6, 3, "192.0.2.1"},
		{"by user", plan.Options{Key: []string{"user"}}, 6, 3, "ann"},
		{"by both", plan.Options{Key: []string{"ip", "user"}}, 6, 5, "2001:db8::/64 ann"},
		{"by path", plan.Options{Key: []string{"path"}}, 6, 5, "/api/a"},
		{"matched", plan.Options{Match: []string{"path=/api/**"}}, 3, 2, "192.0.2.1"},
		{"any of two", plan.Options{Match: []string{"path=/", "path=/API"}}, 2, 2, "192.0.2.2"},
		{"all of two", plan.Options{Match: []string{"path=/api/**", "user=ann"}}, 2, 2, "192.0.2.1"},
		{"from", plan.Options{From: day("2024-01-01T00:00:02Z")}, 4, 3, "2001:db8::/64"},
		{"to", plan.Options{To: day("2024-01-01T00:00:02Z")}, 2, 1, "192.0.2.1"},
		{"without the most", plan.Options{IgnoreTop: 1}, 3, 2, "2001:db8::/64"},
		{"without one", plan.Options{IgnoreKeys: []string{"2001:db8::/64"}}, 4, 2, "192.0.2.1"},
	} {
		r := planText(t, log, test.o)
		tr := r.Traffic
		if tr.Requests != test.requests || tr.Clients != test.clients || tr.Heaviest[0].Key != test.heaviest || r.Log.Clients != test.clients {
			t.Errorf("%s: %d requests of %d clients, heaviest %q; want %d of %d, %q", test.name, tr.Requests, tr.Clients, tr.Heaviest[0].Key, test.requests, test.clients, test.heaviest)
		}
	}
	for _, match := range []string{"path", "=x", "path=[", "ip=notanaddress"} {
		_, err := plan.Run(context.Background(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(string(log)), Match: []string{match}})
		if err == nil {
			t.Errorf("condition %q is taken", match)
		}
	}
}

// Keys of several attributes never meet.
func TestKeysNeverMeet(t *testing.T) {
	log := csv("2024-01-01T00:00:00Z,a_b,c,", "2024-01-01T00:00:00Z,a,b_c,", "2024-01-01T00:00:00Z,a b,c,", "2024-01-01T00:00:00Z,a,b c,", "2024-01-01T00:00:00Z,"+strings.Repeat("x", 300)+",c,")
	if r := planText(t, log, plan.Options{Key: []string{"ip", "path", "user"}}); r.Log.Clients != 5 {
		t.Errorf("%d clients, want 5", r.Log.Clients)
	}
}

// An empty log is no error, a binary one is, and so is one that is mostly bad.
func TestNoLog(t *testing.T) {
	r := planText(t, nil, plan.Options{Limits: []string{"1/s"}, Choose: &plan.Target{}})
	if r.Log.Requests != 0 || r.Choice != nil || len(r.Results) != 1 {
		t.Errorf("an empty log: %+v", r)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil {
		t.Error(err)
	}
	if err := r.HTML(&text); err != nil {
		t.Error(err)
	}
	good := `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	for name, log := range map[string]string{
		"binary":     "\x00\x01\x02\n",
		"mostly bad": strings.Repeat(good, 200) + strings.Repeat("nonsense\n", 300),
	} {
		if _, err := plan.Run(context.Background(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(log)}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	r = planText(t, []byte(strings.Repeat(good, 200)+strings.Repeat("nonsense\n", 100)), plan.Options{})
	if r.Log.Bad != 100 || len(r.Log.Examples) != 3 || !strings.Contains(r.Log.Examples[0], `"nonsense"`) {
		t.Errorf("%+v", r.Log)
	}
}

// endless is a log that never ends.
type endless struct {
	n    int
	stop context.CancelFunc
}

func (e *endless) Read(p []byte) (int, error) {
	if e.n++; e.n == 50 {
		e.stop()
	}
	line := fmt.Sprintf("192.0.2.%d - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n", e.n%200)
	return copy(p, strings.Repeat(line, len(p)/len(line)+1)), nil
}

// When told to stop, it reports what it has read.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	r, err := plan.Run(ctx, plan.Options{Files: []string{"-"}, Stdin: &endless{stop: stop}, Limits: []string{"1/s"}})
	if err != nil || !r.Log.Interrupted || r.Log.Requests == 0 || r.Results[0].Requests != r.Log.Requests {
		t.Errorf("%v, %+v", err, r)
	}
}

// A million clients: what each costs is what the report says, and that is
// within what the documents say.
func TestMillionClients(t *testing.T) {
	if testing.Short() {
		t.Skip("a million clients take a few seconds")
	}
	const n = 1_000_000
	var log strings.Builder
	for i := range n {
		fmt.Fprintf(&log, "10.%d.%d.%d - - [17/May/2015:10:%02d:%02d +0000] \"GET / HTTP/1.1\" 200 5\n", i>>16, i>>8&255, i&255, i/60000%60, i/1000%60)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := planText(t, []byte(log.String()), plan.Options{Limits: []string{"1/s", "10/s"}, Brief: true})
	runtime.ReadMemStats(&after)
	if r.Log.Clients != n {
		t.Fatalf("%d clients, want %d", r.Log.Clients, n)
	}
	perClient, perLimit := float64(r.Log.Memory)/n, float64(r.Log.States)/n/2
	t.Logf("%.1f bytes a client, %.1f a client and limit", perClient, perLimit)
	if perClient > 60 || perLimit > 13 {
		t.Errorf("%.1f bytes a client and %.1f a client and limit: docs/PLAN.md says less", perClient, perLimit)
	}
}
