package redisstore_test

import (
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/redisstore/internal/redistest"
)

var (
	_ policy.ModeStore = (*redisstore.Store)(nil)
	_ policy.Checker   = (*redisstore.Store)(nil)
)

// TestModeRules binds rules of every mode to the store itself, and to a view of
// it, and holds one request to all of them.
func TestModeRules(t *testing.T) {
	server := redistest.Start(t)
	rules, err := policy.Parse([]byte(`{"rules": [
		{"name": "plain", "key": ["ip"], "limits": ["1000/h", "2000/h fixed_window"]},
		{"name": "lease", "key": ["ip"], "mode": "lease", "limits": ["1000/h"]},
		{"name": "async", "key": ["ip"], "mode": "async", "limits": ["1000/h"]},
		{"name": "share", "key": ["ip"], "mode": "share", "limits": ["1000/h"]}
	]}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, view := range map[string]func(*redisstore.Store) stint.Store{
		"the store": func(s *redisstore.Store) stint.Store { return s },
		"a view":    func(s *redisstore.Store) stint.Store { return s.Mode(redisstore.Strict) },
	} {
		s := nodes(t, server.URL(), 1, redisstore.Options{Prefix: "p" + name[:1], Timeout: time.Minute})[0]
		p, err := policy.New(view(s), rules, policy.Options{Secret: make([]byte, 16)})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var r policy.Result
		attrs := policy.Map{"ip": "192.0.2.7"}
		left := func(what string, want int64) {
			t.Helper()
			if err := p.Peek(ctx, attrs, 1, &r); err != nil || len(r.Rules) != 5 {
				t.Fatalf("%s, %s: %+v, %v", name, what, r, err)
			}
			for _, e := range r.Rules {
				want := want
				if e.Limit.Algorithm() == stint.FixedWindow {
					want += 1000
				}
				below := int64(2)
				if e.Rule == "lease" { // the server has what is in hand as used
					below = 200
				}
				if e.Denied || e.Remaining > want+2 || e.Remaining < want-below { // some drains meanwhile
					t.Errorf("%s, %s: %s has %d left, want %d", name, what, e.Label, e.Remaining, want)
				}
			}
		}
		for range 20 {
			if err := p.Decide(ctx, attrs, 1, &r); err != nil || !r.Decision.Allowed {
				t.Fatalf("%s: %+v, %v", name, r.Decision, err)
			}
		}
		left("20 taken", 980)
		token, err := p.Reserve(ctx, attrs, 30, time.Minute, &r)
		if err != nil || token == "" {
			t.Fatalf("%s: %v", name, err)
		}
		left("30 reserved", 950)
		if _, err := p.Settle(ctx, token, 10); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		left("settled at 10", 970)
		p.Close()
	}
}

// TestModeWords refuses words that are no mode, and limits that the server cannot
// hold, before any is bound.
func TestModeWords(t *testing.T) {
	s := nodes(t, redistest.Start(t).URL(), 1, redisstore.Options{})[0]
	if _, err := s.BindMode("sloppy", "a", stint.PerHour(1)); err == nil {
		t.Error("an unknown mode is bound")
	}
	if err := s.Check("sloppy", stint.PerHour(1)); err == nil {
		t.Error("an unknown mode is checked")
	}
	log := stint.New(1_000_000, time.Hour).WithAlgorithm(stint.SlidingLog)
	for mode, fits := range map[string]bool{"": false, "strict": false, "lease": false, "share": true} {
		if err := s.Check(mode, log); (err == nil) != fits {
			t.Errorf("mode %q: a log of a million: %v", mode, err)
		}
	}
}
