package page_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/page"
)

func sum(values []uint32) (n uint32) {
	for _, v := range values {
		n += v
	}
	return n
}

// TestSpans counts for three hours, and for three days, of a virtual clock, with pauses, and compares
// with what was counted in the last hour, and the last day.
func TestSpans(t *testing.T) {
	trySpan(t, page.NewHour(), 10)
	trySpan(t, page.NewDay(), 240)
}

func trySpan(t *testing.T, h *page.Span, long int64) {
	at := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	var total observe.Requests
	said := make(map[string]observe.RuleCounts)
	type past struct {
		column int64
		observe.Requests
	}
	var all []past
	h.Add(at, total, nil)
	for i := range 900 {
		step := 13 * time.Duration(long) * time.Second / 10
		if i == 500 {
			step = 60 * time.Duration(long) * time.Second
		}
		at = at.Add(step)
		more := observe.Requests{Allowed: uint64(i % 7), Denied: uint64(i % 3)}
		total.Allowed, total.Denied = total.Allowed+more.Allowed, total.Denied+more.Denied
		next := map[string]observe.RuleCounts{"a": {Allowed: total.Allowed}, "b": {Denied: total.Denied / 2, Blocked: total.Denied - total.Denied/2}, "idle": {}}
		h.Add(at, total, next)
		said = next
		all = append(all, past{at.Unix() / long, more})
		var want, ofA observe.Requests
		for _, p := range all {
			if p.column > at.Unix()/long-360 {
				want.Allowed, want.Denied = want.Allowed+p.Allowed, want.Denied+p.Denied
			}
			if p.column/6 > at.Unix()/long/6-60 {
				ofA.Allowed += p.Allowed
			}
		}
		got := h.History(at, 20)
		if len(got.Allowed) != 360 || len(got.Denied) != 360 || uint64(sum(got.Allowed)) != want.Allowed || uint64(sum(got.Denied)) != want.Denied {
			t.Fatalf("at %v: %d passed, %d denied; want %+v", at, sum(got.Allowed), sum(got.Denied), want)
		}
		if a := h.Rule(at, "a"); uint64(sum(a.Allowed)) != ofA.Allowed {
			t.Fatalf("at %v: a let %d pass, want %d", at, sum(a.Allowed), ofA.Allowed)
		}
	}
	got := h.History(at, 1)
	if len(got.Rules) != 1 || got.Rules[0].Rule != "b" || got.Others != 1 || h.Held() != 2 {
		t.Errorf("rules: %+v, %d held", got, h.Held())
	}
	at = at.Add(720 * time.Duration(long) * time.Second)
	h.Add(at, total, said)
	if got := h.History(at, 20); sum(got.Allowed)+sum(got.Denied) != 0 || len(got.Rules) != 0 || h.Held() != 0 {
		t.Errorf("after a quiet time: %+v", got)
	}
}

// TestSpanBounded: a hundred thousand rules take no more room than ten thousand,
// and a counter that begins anew counts from there.
func TestSpanBounded(t *testing.T) {
	h := page.NewHour()
	at := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	h.Add(at, observe.Requests{Allowed: 1000}, map[string]observe.RuleCounts{"anew": {Allowed: 1000}})
	said := map[string]observe.RuleCounts{"anew": {Allowed: 5}}
	for i := range 100_000 {
		said[fmt.Sprint("rule", i)] = observe.RuleCounts{Allowed: 1}
	}
	h.Add(at.Add(time.Second), observe.Requests{Allowed: 7}, said)
	if n := h.Held(); n != 10_000 {
		t.Errorf("%d rules are held", n)
	}
	if got := h.History(at.Add(time.Second), 20); sum(got.Allowed) != 7 || len(got.Rules) != 20 || got.Others != 10_000-20 {
		t.Errorf("%d passed, %d rules, %d others", sum(got.Allowed), len(got.Rules), got.Others)
	}
	if got := h.Rule(at, "none"); len(got.Allowed) != 60 || sum(got.Allowed) != 0 {
		t.Errorf("a rule that is not there: %+v", got)
	}
}
