package sizing_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/internal/redistest"

	"github.com/stint-dev/stint/planner/sizing"
)

// margin is how far memory and network may be from what a server reports.
const margin = 0.25

// info returns a number of INFO.
func info(t *testing.T, s *redistest.Server, section, field string) float64 {
	t.Helper()
	_, rest, ok := strings.Cut(s.CLI(t, "info", section), field+":")
	if !ok {
		t.Fatalf("INFO %s has no %s", section, field)
	}
	var n float64
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// memory is what a server has in use once its clients are gone: their buffers are the
// larger the more a busy machine has it read at once.
func memory(t *testing.T, s *redistest.Server) float64 {
	t.Helper()
	redistest.Eventually(t, "other clients are there", func() bool { return info(t, s, "clients", "connected_clients") == 1 })
	return info(t, s, "memory", "used_memory")
}

// TestReal charges many keys on a real server, and compares what that reports with
// what is said beforehand: memory, bytes in and out, connections.
func TestReal(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, one := range []struct {
		limit   string
		keys    int
		charges int // of each
	}{
		{"100/1h", 20_000, 1}, {"7/1h", 20_000, 3}, {"100/1h leaky_queue", 20_000, 1}, {"100/1h fixed_window", 20_000, 1}, {"100 per day in Europe/Paris", 20_000, 1},
		{"100/1h sliding_counter", 20_000, 1}, {"100/1h token_bucket_interval", 20_000, 1}, {"100/1h sliding_buckets", 20_000, 1},
		{"100/1h sliding_log", 20_000, 1}, {"100/1h sliding_log", 2_000, 60},
	} {
		t.Run(fmt.Sprint(one.limit, " ", one.charges), func(t *testing.T) {
			limit, err := stint.Parse(one.limit)
			if err != nil {
				t.Fatal(err)
			}
			// A window that ends meanwhile takes its keys along; days end with an hour.
			if left := time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)); left < 2*time.Minute {
				time.Sleep(left)
			}
			server := redistest.Start(t)
			server.CLI(t, "config", "set", "slowlog-log-slower-than", "-1") // a busy machine would fill it
			options := redisstore.Options{URL: server.URL(), Tag: policy.Tag, Timeout: time.Minute, NewKeys: -1}
			var now atomic.Int64
			if now.Store(1_800_000_000_000_000_000); one.charges > 10 { // spread over the period
				options.Now = now.Load
			}
			before, _ := connect(t, options, limit)
			before.Close() // the script is there now
			used := memory(t, server)
			store, bound := connect(t, options, limit)
			defer store.Close()
			in, out := info(t, server, "stats", "total_net_input_bytes"), info(t, server, "stats", "total_net_output_bytes")
			for range one.charges {
				fill(t, bound, one.keys)
				now.Add(int64(limit.Period()) / int64(one.charges))
			}
			in, out = info(t, server, "stats", "total_net_input_bytes")-in, info(t, server, "stats", "total_net_output_bytes")-out
			connections := info(t, server, "clients", "connected_clients") - 1 // but for this asker
			store.Close()
			used = memory(t, server) - used
			seconds := limit.Period().Seconds()
			rate := float64(one.keys*one.charges) / seconds // so that each key is charged as often in a period
			if unit, _ := limit.Calendar(); unit != "" {
				rate = 1
			}
			said := sizing.Of([]sizing.Rule{{Name: "rule", Limits: []stint.Limit{limit}, Keys: int64(one.keys)}}, sizing.Load{Rate: rate, Processes: 1, Nodes: 1})
			t.Logf("%.1f bytes a key, said %d; in %.0f bytes, said %.0f; out %.0f, said %.0f", used/float64(one.keys), said.Rules[0].Each,
				in, said.In/rate*float64(one.keys*one.charges), out, said.Out/rate*float64(one.keys*one.charges))
			near(t, "memory", float64(said.Memory), used)
			if connections > float64(said.Connections) {
				t.Errorf("%.0f connections, said %d", connections, said.Connections)
			}
			if calls := float64(one.keys * one.charges); in > (1+margin)*said.In/rate*calls || out > (1+margin)*said.Out/rate*calls {
				t.Errorf("%.0f bytes in and %.0f out: more than was said", in, out)
			}
		})
	}
}

// connect opens a store that has asked its server.
func connect(t *testing.T, o redisstore.Options, limit stint.Limit) (*redisstore.Store, stint.Bound) {
	t.Helper()
	store, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := store.Bind("rule", limit)
	if err == nil {
		_, err = bound.Allow(context.Background(), "192.0.2.1", 0)
	}
	if err != nil {
		store.Close()
		t.Fatal(err)
	}
	return store, bound
}

// fill charges so many keys, each once.
func fill(t *testing.T, bound stint.Bound, keys int) {
	var all sync.WaitGroup
	for g := range 64 {
		all.Go(func() {
			for i := g; i < keys; i += 64 {
				if ok, err := bound.Allow(context.Background(), fmt.Sprintf("192.0.%d.%d", i/200, i%200), 1); err != nil || !ok {
					t.Errorf("%v %v", ok, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func near(t *testing.T, what string, said, is float64) {
	t.Helper()
	if math.Abs(said-is) > margin*is {
		t.Errorf("%s: %.0f, said %.0f", what, is, said)
	}
}

// TestCalls says how many calls requests take: of one key, of several on one node,
// and of several in a cluster, where at most each node is asked twice.
func TestCalls(t *testing.T) {
	rule := func(name, mode string, keys int64) sizing.Rule {
		return sizing.Rule{Name: name, Limits: []stint.Limit{stint.PerSecond(100)}, Mode: mode, Keys: keys}
	}
	for _, one := range []struct {
		rules       []sizing.Rule
		nodes       int
		least, most float64 // calls a request
	}{
		{[]sizing.Rule{rule("a", "", 100)}, 1, 1, 1},
		{[]sizing.Rule{rule("a", "", 100), rule("b", "", 100)}, 1, 1, 1},
		{[]sizing.Rule{rule("a", "", 100), rule("b", "", 100)}, 3, 2, 4},
		{[]sizing.Rule{{Name: "a", Limits: []stint.Limit{stint.PerSecond(100), stint.PerMinute(100)}, Keys: 100}}, 3, 1, 1},
		{[]sizing.Rule{rule("a", "share", 100)}, 3, 0, 0},
		{[]sizing.Rule{rule("a", "lease", 1)}, 1, 0.01, 0.1},
		{[]sizing.Rule{rule("a", "lease", 1), rule("b", "", 100)}, 1, 1.01, 1.1},
	} {
		a := sizing.Of(one.rules, sizing.Load{Rate: 1000, Processes: 3, Nodes: one.nodes})
		if got := a.Calls / 1000; got < one.least || got > one.most {
			t.Errorf("%+v on %d nodes: %.3f calls a request, want %g to %g", one.rules, one.nodes, got, one.least, one.most)
		}
		if a.Alone < a.Together || a.In < 0 || a.Masters < 1 {
			t.Errorf("%+v", a)
		}
	}
}

// TestFull tells a log that is full from one that is used a little.
func TestFull(t *testing.T) {
	log, err := stint.Parse("5000/1h sliding_log")
	if err != nil {
		t.Fatal(err)
	}
	a := sizing.Of([]sizing.Rule{{Name: "log", Limits: []stint.Limit{log}, Keys: 1000}}, sizing.Load{Rate: 1, Processes: 1, Nodes: 1})
	if n := a.Rules[0]; n.Each > 500 || n.Most < 5000*3 || n.Most > 5000*16 {
		t.Errorf("%+v", n)
	}
}
