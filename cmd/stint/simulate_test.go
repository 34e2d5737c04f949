package main_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/redistest"
)

// lines returns operations of all verbs on a few keys, now and then many on one,
// as nodes take ahead for.
func lines(rnd *rand.Rand, n int) string {
	var b strings.Builder
	at := int64(0)
	for i := range n {
		at += rnd.Int64N(2_000) * rnd.Int64N(2) // waits on a Redis are whole microseconds
		key, cost := rnd.IntN(3), 1+rnd.IntN(4)*rnd.IntN(2)
		verb := "take"
		if i%1000 > 600 {
			verb = []string{"take", "take", "peek", "take_up_to", "refund", "reserve", "settle", "reset"}[rnd.IntN(8)]
		} else if i%1000 > 100 {
			key = 0
		}
		fmt.Fprintf(&b, `{"t":"%dus","key":"k%d","op":%q,"cost":%d`, at, key, verb, cost)
		if verb == "settle" {
			b.WriteString(`,"reservation":"r1"`)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// TestSimulateStore compares what operations are answered with a Redis and without: the
// same lines.
func TestSimulateStore(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	redis := startRedis(t, "")
	const n = 3000
	begin := `{"t":"0s","key":"k0","op":"reserve","cost":5}` + "\n"
	for _, limits := range [][]string{
		{"1000/s burst 400"}, {"200/s"}, {"900/s fixed_window"}, {"1000/s burst 400", "2000/10s fixed_window"}, {"300/s sliding_log"},
	} {
		s := session{args: []string{"simulate"}, in: begin + lines(rand.New(rand.NewPCG(1, 9)), n)}
		for _, l := range limits {
			s.args = append(s.args, "--limit", l)
		}
		got := s.run()
		s.args = append(s.args, "--store", "redis://"+redis.address)
		want := s.run()
		if strings.Count(want, "\n") != n+1 || !strings.Contains(want, `"allowed":false`) {
			t.Fatalf("%v: %.300s", s.args, want)
		}
		if got != want {
			t.Errorf("%v: %s", s.args, firstDifference(got, want))
		}
	}
}

// TestSimulateArrivalsOnRedis shows all modes with a Redis, and leaves no key there.
func TestSimulateArrivalsOnRedis(t *testing.T) {
	redis := startRedis(t, "")
	s := session{args: []string{"simulate", "--nodes", "4", "--limit", "1000/s burst 1000", "--arrivals", "1500@1500/s", "--store", "redis://" + redis.address}}
	got := s.run()
	for _, mode := range []string{"\nstrict ", "\nlease ", "\nasync ", "\nshare "} {
		if !strings.Contains(got, mode) {
			t.Errorf("no%s in\n%s", mode, got)
		}
	}
	if left := redistest.CLI(t, "-u", "redis://"+redis.address, "dbsize"); strings.TrimSpace(left) != "0" {
		t.Errorf("keys are left: %s", left)
	}
}

// firstDifference returns the first lines that differ.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines and %d", len(g), len(w))
}
