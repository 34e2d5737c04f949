package lab_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/planner/lab"
	"github.com/stint-dev/stint/planner/trial"
)

// everyKind is ten a second by each kind, and options of theirs.
var everyKind = []string{
	"10/s", "10/s burst 3 token_bucket_interval", "10/s burst 5 leaky_queue", "10/s fixed_window count_denied",
	"10/s sliding_log", "10/s sliding_counter", "10/s sliding_buckets parts 4", "7/s burst 9",
}

func simulate(t testing.TB, r *lab.Request) *lab.Answer {
	t.Helper()
	a, err := lab.Simulate(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func phases(text string) lab.Arrivals { return lab.Arrivals{Shape: "text", Text: text} }

// TestSimulateGolden holds the whole JSON of a small simulation of every kind.
func TestSimulateGolden(t *testing.T) {
	one := 1
	a := simulate(t, &lab.Request{
		Limits: everyKind, Arrivals: phases("+900ms 6@once +200ms 12@40/s +700ms"), Columns: 8,
		Why: &lab.Place{Limit: 0, Request: 16}, Copy: &one,
	})
	got, err := json.MarshalIndent(a, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "testdata/simulate.json", string(got)+"\n")
}

// TestSimulateAgrees compares the rows with what stint simulate --compare says
// about the same phases: totals, the most in a period, and what is left.
func TestSimulateAgrees(t *testing.T) {
	for _, text := range []string{"+1900ms 10@once +100ms 10@once +1s 40@20/s +1s", "30@10/s +2s 20@once +2s", "60@7/s", "5@once"} {
		a := simulate(t, &lab.Request{Limits: everyKind, Arrivals: phases(text)})
		parsed, err := trial.ParsePhases(text)
		if err != nil {
			t.Fatal(err)
		}
		arrivals, end := trial.Arrivals(parsed)
		for i, row := range a.Rows {
			c, err := trial.Compare([][]stint.Limit{{limit(t, everyKind[i])}}, arrivals, end, 0)
			if err != nil {
				t.Fatal(err)
			}
			want := c.Rows[0]
			if row.Passed != want.Passed || row.Denied != want.Denied || row.Delayed != want.Delayed ||
				row.Most != want.Most || row.LongestWait != want.LongestWait {
				t.Errorf("%s on %s: %d passed, %d delayed, %d denied, most %d, longest %d; trial says %+v",
					row.Limit, text, row.Passed, row.Delayed, row.Denied, row.Most, row.LongestWait, want)
			}
		}
	}
}

func limit(t testing.TB, text string) stint.Limit {
	t.Helper()
	return made.Limit(t, text)
}

// traffic is random arrivals of some clients and costs.
func traffic(r *rand.Rand) lab.Arrivals {
	a := lab.Arrivals{Shape: "list"}
	at := int64(0)
	for range 1 + r.IntN(200) {
		if r.IntN(3) > 0 {
			at += r.Int64N(int64(300 * time.Millisecond))
		}
		a.Times = append(a.Times, at)
		a.Costs = append(a.Costs, []int64{1, 1, 1, 1, 0, 2, 5, 11}[r.IntN(8)])
		a.Keys = append(a.Keys, []string{"a", "b"}[r.IntN(2)])
	}
	return a
}

// TestSimulateStore compares each request with what the embedded store says to
// it on a virtual clock.
func TestSimulateStore(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		kinds := everyKind
		if i%2 == 1 {
			kinds = []string{"10/s ban 700ms", "10/s fixed_window count_denied ban 2s", "7/s leaky_queue ban 1ns"}
		}
		arrivals := traffic(r)
		a := simulate(t, &lab.Request{Limits: kinds, Arrivals: arrivals, Columns: 50, Watch: arrivals.Keys[0]})
		for i, row := range a.Rows {
			now := int64(0)
			store := memstore.New(memstore.Options{Now: func() int64 { return now }})
			limiter := made.Limiter(t, store, "test", limit(t, kinds[i]))
			for j, at := range arrivals.Times {
				now = at
				before, _ := limiter.Peek(t.Context(), arrivals.Keys[j], 1)
				d, err := limiter.Take(t.Context(), arrivals.Keys[j], arrivals.Costs[j])
				if err != nil {
					t.Fatal(err)
				}
				delay := int64(0)
				if row.Each.Delay != nil {
					delay = row.Each.Delay[j]
				}
				if (row.Each.Verdicts[j] == 'd') == d.Allowed || row.Each.Remaining[j] != d.Remaining || delay != int64(d.Delay) ||
					row.Each.RetryAfter[j] != int64(d.RetryAfter) || row.Each.Before[j] != d.Limit-before.Remaining {
					t.Fatalf("%s, request %d of %+v: the store says %+v", row.Limit, j, arrivals, d)
				}
			}
			checkColumns(t, a, row, arrivals)
		}
	}
}

// checkColumns holds the columns to the requests.
func checkColumns(t *testing.T, a *lab.Answer, row *lab.Row, arrivals lab.Arrivals) {
	t.Helper()
	c := row.Columns
	n := int(a.Columns)
	for _, list := range [][]int64{c.Passed, c.Delayed, c.Denied, c.Low, c.High, c.Remaining, c.RetryAfter} {
		if len(list) != n {
			t.Fatalf("%s: %d columns, want %d", row.Limit, len(list), n)
		}
	}
	counted := make([][3]int64, n)
	for j, at := range arrivals.Times {
		counted[at*a.Columns/a.Horizon][map[byte]int{'p': 0, 'w': 1, 'd': 2}[row.Each.Verdicts[j]]]++
		if i := at * a.Columns / a.Horizon; arrivals.Keys[j] == arrivals.Keys[0] && (row.Each.Before[j] > c.High[i] || row.Each.Before[j] < c.Low[i]) {
			t.Fatalf("%s: column %d runs from %d to %d, request %d met %d", row.Limit, i, c.Low[i], c.High[i], j, row.Each.Before[j])
		}
	}
	for i := range n {
		if counted[i] != [3]int64{c.Passed[i], c.Delayed[i], c.Denied[i]} {
			t.Fatalf("%s, column %d: %v, want %v", row.Limit, i, []int64{c.Passed[i], c.Delayed[i], c.Denied[i]}, counted[i])
		}
	}
}

// TestSimulateShapes says what each shape sends: the first times and how many.
func TestSimulateShapes(t *testing.T) {
	for _, c := range []struct {
		name     string
		arrivals lab.Arrivals
		requests int
		first    string
	}{
		{"steady", lab.Arrivals{Shape: "steady", Rate: "4/s"}, 24, "[0s 250ms 500ms 750ms]"},
		{"thirds", lab.Arrivals{Shape: "steady", Rate: "3/s"}, 18, "[0s 333.333334ms 666.666667ms 1s]"},
		{"bursts", lab.Arrivals{Shape: "burst", Size: 2, Every: "4s"}, 4, "[0s 0s 4s 4s]"},
		{"edge", lab.Arrivals{Shape: "edge", Size: 2, Gap: "100ms", Rate: "20/s", Period: "1s"}, 44, "[1.9s 1.9s 2s 2s]"},
		{"on and off", lab.Arrivals{Shape: "onoff", Rate: "2/s", On: "1s", Off: "2s"}, 4, "[0s 500ms 3s 3.5s]"},
		{"on longer than it is off", lab.Arrivals{Shape: "onoff", Rate: "1/2s", On: "1s", Off: "500ms"}, 3, "[0s 2s 4s]"},
		{"several", lab.Arrivals{Shape: "several", Clients: 2, Rate: "1/s", Other: "2/s"}, 18, "[0s 0s 500ms 1s]"},
		{"drawn", lab.Arrivals{Shape: "draw", Cell: "500ms", Counts: []int64{0, 2, 0, 1}}, 3, "[500ms 750ms 1.5s]"},
		{"text", phases("2@once +1s 2@1/s"), 4, "[0s 0s 1s 2s]"},
		{"text beyond the horizon", phases("2@once +10s 2@1/s"), 2, "[0s 0s]"},
		{"list", lab.Arrivals{Shape: "list", Times: []int64{1, 1, 7e9}}, 2, "[1ns 1ns]"},
	} {
		a := simulate(t, &lab.Request{Limits: []string{"10/s"}, Arrivals: c.arrivals, Horizon: "6s"})
		var first []time.Duration
		for _, at := range a.At[:min(4, len(a.At))] {
			first = append(first, time.Duration(at))
		}
		if a.Requests != c.requests || fmt.Sprint(first) != c.first {
			t.Errorf("%s: %d requests, first %v; want %d, first %s", c.name, a.Requests, first, c.requests, c.first)
		}
	}
}

// TestSimulatePoisson: the seed decides, and the mean is the rate.
func TestSimulatePoisson(t *testing.T) {
	sent := func(seed uint64) []int64 {
		return simulate(t, &lab.Request{
			Limits: []string{"10/s"}, Horizon: "1000s", Arrivals: lab.Arrivals{Shape: "poisson", Rate: "20/s", Seed: seed},
		}).At
	}
	a, again, b := sent(1), sent(1), sent(2)
	if !slices.Equal(a, again) || slices.Equal(a, b) {
		t.Error("the same seed must send the same requests, another one others")
	}
	if n := len(a); n < 19_000 || n > 21_000 { // seven deviations of 141
		t.Errorf("%d requests in 1000s at 20/s", n)
	}
}

// TestSimulateClients plays the two that come again.
func TestSimulateClients(t *testing.T) {
	wants := lab.Arrivals{Shape: "hammer", Rate: "10/s", Gap: "10ms"}
	row := simulate(t, &lab.Request{Limits: []string{"2/s burst 1"}, Horizon: "2s", Arrivals: wants}).Rows[0]
	// One passes each 500 ms; the next is tried at once, and each 10 ms. The
	// second was due at 100 ms, so that has 40 denials and the others 50.
	if got := fmt.Sprint(row.Passed, row.Denied, row.Each.At[:3]); got != "4 190 [0 100000000 110000000]" {
		t.Errorf("hammering: %s", got)
	}
	wants = lab.Arrivals{Shape: "polite", Rate: "10/s"}
	row = simulate(t, &lab.Request{Limits: []string{"2/s burst 1"}, Horizon: "2s", Arrivals: wants}).Rows[0]
	if got := fmt.Sprint(row.Passed, row.Denied, row.Each.At); got != "4 4 [0 100000000 500000000 500000000 1000000000 1000000000 1500000000 1500000000]" {
		t.Errorf("polite: %s", got)
	}
	row = simulate(t, &lab.Request{Limits: []string{"2/s leaky_queue"}, Horizon: "2s", Arrivals: wants}).Rows[0]
	if got := fmt.Sprint(row.Passed, row.Delayed, row.Each.At); got != "1 4 [0 100000000 500000000 1000000000 1500000000]" {
		t.Errorf("polite in a queue, which waits for its turn: %s", got)
	}
	a := lab.Arrivals{Shape: "several", Clients: 2, Rate: "1/s", Other: "10/s"}
	apart := simulate(t, &lab.Request{Limits: []string{"2/s"}, Horizon: "5s", Arrivals: a}).Rows[0]
	a.Shared = true
	shared := simulate(t, &lab.Request{Limits: []string{"2/s"}, Horizon: "5s", Arrivals: a}).Rows[0]
	if apart.Passed != 5+11 || shared.Passed != 11 {
		t.Errorf("two clients: %d passed with a key each, %d with one; want 16 and 11", apart.Passed, shared.Passed)
	}
}

func TestSimulateErrors(t *testing.T) {
	ten := []string{"10/s"}
	list := func(times ...int64) lab.Arrivals { return lab.Arrivals{Shape: "list", Times: times} }
	for want, r := range map[string]lab.Request{
		"limits: 0 given, want from 1 to 8": {},
		"limits: 9 given, want from 1 to 8": {Limits: make([]string, 9)},
		`limits[1]: limit "10/x", column 4: unknown period "x"; write s, m, h, d, w, a number of them such as "2 hours", or a duration such as 90s or 1h30m`: {Limits: []string{"1/s", "10/x"}},
		`arrivals.shape: "" is unknown: want one of edge, steady, burst, onoff, poisson, hammer, polite, several, draw, text, list`:                          {Limits: ten},
		"horizon: missing: the shape steady has no end of its own":                                                                                           {Limits: ten, Arrivals: lab.Arrivals{Shape: "steady", Rate: "1/s"}},
		"horizon: -1s, want from 1ns to 876000h0m0s":                                                                                                         {Limits: ten, Horizon: "-1s"},
		`horizon: "tomorrow" is no duration: want one such as 1.5s`:                                                                                          {Limits: ten, Horizon: "tomorrow"},
		"columns: 3000, want from 1 to 2000":                                                                                                                 {Limits: ten, Columns: 3000},
		"arrivals.gap: the shape steady has no such parameter":                                                                                               {Limits: ten, Horizon: "1s", Arrivals: lab.Arrivals{Shape: "steady", Rate: "1/s", Gap: "1s"}},
		`arrivals.rate: "fast" is no rate: want one such as 20/s`:                                                                                            {Limits: ten, Horizon: "1s", Arrivals: lab.Arrivals{Shape: "steady", Rate: "fast"}},
		`arrivals.rate: "1/s +1s" is no rate: want one such as 20/s`:                                                                                         {Limits: ten, Horizon: "1s", Arrivals: lab.Arrivals{Shape: "steady", Rate: "1/s +1s"}},
		"arrivals: more than 100000 requests: take a lower rate or a shorter horizon":                                                                        {Limits: ten, Horizon: "1h", Arrivals: lab.Arrivals{Shape: "steady", Rate: "1000/s"}},
		"arrivals.every: missing: want a duration such as 1.5s":                                                                                              {Limits: ten, Horizon: "1s", Arrivals: lab.Arrivals{Shape: "burst", Size: 1}},
		"arrivals.size: 0, want from 1 to 100000":                                                                                                            {Limits: ten, Horizon: "1s", Arrivals: lab.Arrivals{Shape: "burst", Every: "1s"}},
		"arrivals.times[1]: 1: want nanoseconds in order, from 0 to 3153600000000000000":                                                                     {Limits: ten, Arrivals: list(2, 1)},
		"arrivals.times[0]: -1: want nanoseconds in order, from 0 to 3153600000000000000":                                                                    {Limits: ten, Arrivals: list(-1)},
		"arrivals.costs: 2 given for 1 times":                                                                                                                {Limits: ten, Arrivals: lab.Arrivals{Shape: "list", Times: []int64{1}, Costs: []int64{1, 1}}},
		"arrivals.costs[0]: -1 is below 0":                                                                                                                   {Limits: ten, Arrivals: lab.Arrivals{Shape: "list", Times: []int64{1}, Costs: []int64{-1}}},
		"arrivals: no request before the horizon":                                                                                                            {Limits: ten, Horizon: "1s", Arrivals: list(1e9)},
		"arrivals.counts: no request is drawn before the horizon":                                                                                            {Limits: ten, Horizon: "1s", Arrivals: lab.Arrivals{Shape: "draw", Cell: "1s", Counts: []int64{0, 5}}},
		`watch: there is no client "b"`:                                                                                                                      {Limits: ten, Arrivals: list(1), Watch: "b"},
		"why.limit: 1, want from 0 to 0":                                                                                                                     {Limits: ten, Arrivals: list(1), Why: &lab.Place{Limit: 1}},
		"why.request: 1, want from 0 to 0":                                                                                                                   {Limits: ten, Arrivals: list(1), Why: &lab.Place{Request: 1}},
		"arrivals: the client tries more than 100000 times: a longer gap or a shorter horizon":                                                               {Limits: []string{"1/h"}, Horizon: "1h", Arrivals: lab.Arrivals{Shape: "hammer", Rate: "1/s", Gap: "1ms"}},
	} {
		if _, err := lab.Simulate(t.Context(), &r); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lab.Simulate(ctx, &lab.Request{Limits: ten, Arrivals: list(1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("a simulation whose caller is gone: %v", err)
	}
}

// TestSimulateExtremes: the ends of int64 neither panic nor wrap.
func TestSimulateExtremes(t *testing.T) {
	most := int64(1<<63 - 1)
	a := lab.Arrivals{Shape: "list", Times: []int64{0, 0, 1, 3153600000000000000}, Costs: []int64{most, 1, most - 1, most}}
	limits := []string{
		"1/1ns burst 9223372036854775806", "9223372036854775807/1ns", "9223372036854775806/1s leaky_queue", "9223372036854775807/40000h fixed_window count_denied",
		"9223372036854775807/40000h sliding_log", "9223372036854775807/s sliding_counter count_denied", "9223372036854775807/h sliding_buckets parts 3600 count_denied",
		"9223372036854775807/s token_bucket_interval",
	}
	for i := range limits {
		for j := range a.Times {
			answer := simulate(t, &lab.Request{Limits: limits, Arrivals: a, Why: &lab.Place{Limit: i, Request: j}})
			for _, row := range answer.Rows {
				for k := range a.Times {
					if row.Each.Before[k] < 0 || row.Each.Remaining[k] < 0 || row.Most < 0 {
						t.Fatalf("%s: %+v", row.Limit, row.Each)
					}
				}
			}
		}
	}
}

// TestSimulateEnds: a simulation ends with its context, in its requests and in what it
// explains.
func TestSimulateEnds(t *testing.T) {
	r := &lab.Request{Limits: everyKind, Arrivals: phases("100@once"), Horizon: "1s"}
	if a, err := lab.Simulate(&later{Context: context.Background()}, r); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", a, err)
	}
	r.Why = &lab.Place{Limit: 0, Request: 90}
	if _, err := lab.Simulate(&later{Context: context.Background(), calls: 4 * len(everyKind)}, r); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the verdict is explained: %v", err)
	}
}

// A later is a context that ends when it has been asked for often enough.
type later struct {
	context.Context
	mu    sync.Mutex
	calls int
}

func (c *later) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls--; c.calls < 0 {
		return context.DeadlineExceeded
	}
	return nil
}
