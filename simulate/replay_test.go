package simulate_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/simulate"
)

// TestTake decides requests without lines as it does operations, and a peek says what the
// take after it will, wherever it knows.
func TestTake(t *testing.T) {
	for _, limits := range [][]string{
		{"3/s"}, {"3/s leaky_queue", "10/m"}, {"2 in flight"}, {"2 in flight", "3 in flight"}, {"2 in flight", "3/s"},
	} {
		lines, err := simulate.InMemory(limits, 0)
		if err != nil {
			t.Fatal(err)
		}
		requests, err := simulate.InMemory(limits, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(60) {
			q := simulate.Request{At: i / 3 * 2e8, Key: fmt.Sprint(i % 2), Cost: 1 + i%2, Lasts: time.Duration(i%4) * 1e8}
			want, err := lines.Do(simulate.Op{At: q.At, Key: q.Key, Cost: q.Cost, Lasts: q.Lasts})
			if err != nil {
				t.Fatal(err)
			}
			peeked, err := requests.Peek(q)
			if known := fmt.Sprint(limits) != "[2 in flight 3/s]"; (err == nil) != known || known && peeked.Allowed != want.Decision.Allowed {
				t.Fatalf("%q, request %d: a peek says %+v, %v", limits, i, peeked, err)
			}
			if got, err := requests.Take(q); err != nil || got != want.Decision {
				t.Fatalf("%q, request %d: %+v, %v; want %+v", limits, i, got, err, want.Decision)
			}
		}
	}
	none, err := simulate.InMemory(nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := none.Take(simulate.Request{Key: "a", Cost: 1}); err == nil {
		t.Errorf("without limits: %+v", d)
	}
}

// TestClockAfter does what is due in order, each at its moment.
func TestClockAfter(t *testing.T) {
	var clock simulate.Clock
	var did string
	at := func(moment int64, while time.Duration, name string) {
		clock.After(moment, while, func() { did += fmt.Sprintf("%s at %d, ", name, clock.Now()) })
	}
	at(5, 5, "b")
	at(5, 2, "a")
	at(10, 0, "c")
	at(1, math.MaxInt64, "never")
	clock.Advance(9)
	clock.Advance(10)
	at(3, 0, "late")
	clock.Advance(0)
	if want := "a at 7, b at 10, c at 10, late at 10, "; did != want || clock.Now() != 10 {
		t.Errorf("%sat %d, want %s", did, clock.Now(), want)
	}
}

type path string

func (p path) Attribute(name string) (string, bool) { return string(p), name == "path" }

// TestRules has requests end, and responses settle, before what comes after.
func TestRules(t *testing.T) {
	rules := made.Rules(t, `{"rules": [
		{"name": "one", "key": ["path"], "limits": ["1 in flight"]},
		{"name": "told", "match": {"path": ["/b", "/c"]}, "key": ["path"], "limits": ["3/h"], "cost": {"response": "header.units", "reserve": 1}}]}`)
	r, err := simulate.NewRules(0, 0, func(s *memstore.Store) (*policy.Policy, error) { return policy.New(s, rules, policy.Options{}) })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	broken := errors.New("broken")
	for _, c := range []struct {
		at, lasts int64
		path      path
		respond   func(*policy.Pending) error
		allowed   bool
		err       error
	}{
		{0, 10, "/a", nil, true, nil},
		{9, 10, "/a", nil, false, nil},
		{10, 0, "/a", nil, true, nil},
		{10, 5, "/a", nil, true, nil},
		{20, 10, "/b", func(p *policy.Pending) error {
			return errors.Join(p.Header(t.Context(), 200, map[string][]string{"Units": {"3"}}), p.End(t.Context(), true))
		}, true, nil},
		{30, 0, "/b", nil, false, nil},
		{40, 0, "/c", func(*policy.Pending) error { return broken }, true, nil},
		{41, 0, "/c", nil, true, broken},
	} {
		result, err := r.Decide(t.Context(), simulate.Call{At: c.at, Attributes: c.path, Cost: 1, Lasts: time.Duration(c.lasts), Respond: c.respond})
		if !errors.Is(err, c.err) || err == nil && result.Decision.Allowed != c.allowed {
			t.Errorf("%s at %d: %+v, %v", c.path, c.at, result, err)
		}
	}
}
