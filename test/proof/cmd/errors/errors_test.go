package main

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/stint-dev/stint"
)

// TestLog holds what was measured on the real log to what theory allows.
func TestLog(t *testing.T) {
	c, err := openLog()
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, rate := range []string{"10/1m", "100/24h"} {
		for _, kind := range contenders {
			e, err := replay(c, rate, kind)
			if err != nil {
				t.Fatal(err)
			}
			if e.decisions != c.requests() || e.denied == 0 {
				t.Errorf("%s %s: %d decisions, %d denied", rate, kind, e.decisions, e.denied)
			}
			switch {
			case kind == "sliding_log" && e.differs+e.falseDenials+e.falseAdmissions > 0,
				strings.HasPrefix(kind, "sliding_buckets") && e.falseAdmissions > 0,
				e.most > 2*e.count, (kind == "sliding_counter" || kind == "gcra") && e.most >= 2*e.count:
				t.Errorf("%s %s: %+v", rate, kind, e)
			}
		}
	}
}

// TestWorst wants the search to come near what theory allows, and never past it.
func TestWorst(t *testing.T) {
	const count, minute = 10, int64(60e9)
	for _, c := range []struct {
		kind                    string
		least, most             int64 // units in a window
		leastLate, greatestLate int64 // ns
	}{
		{"sliding_log", count, count, 0, 0},
		{"sliding_counter", count + 5, 2*count - 1, minute / 4, minute},
		{"sliding_counter relaxed", count + 6, 2 * count, minute / 10, minute},
		{"sliding_buckets parts 10", count, count, minute / 20, minute / 10},
		{"sliding_buckets", count, count, minute / 120, minute / 60},
		{"fixed_window", 2 * count, 2 * count, 0, 0},
		{"gcra", 2*count - 4, 2*count - 1, 0, 0},
	} {
		l, err := stint.Parse("10/1m " + c.kind)
		if err != nil {
			t.Fatal(err)
		}
		most, err := newSearch(l, greatestExcess).climb(4000)
		if err != nil || most.score < c.least || most.score > c.most {
			t.Errorf("%s: %d in a window by %v, want from %d to %d; %v", c.kind, most.score, most.admitted, c.least, c.most, err)
		}
		late, err := newSearch(l, longestLate).climb(4000)
		if err != nil || late.score < c.leastLate || late.score > c.greatestLate {
			t.Errorf("%s: denied %d ns longer than by a log by %v, want from %d to %d; %v",
				c.kind, late.score, late.admitted, c.leastLate, c.greatestLate, err)
		}
	}
}

// TestReport prints all tables once.
func TestReport(t *testing.T) {
	var b strings.Builder
	if err := report(&b, 80); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"### On a real log", "| sliding_counter | 10 |", "| 1m0s | 10 | passes | denied, retry after 59.999999999s |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, b.String())
		}
	}
}
