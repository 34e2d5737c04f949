package stint_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
)

// Values that no constructor made say so, and decide nothing.
func TestZeroValues(t *testing.T) {
	var l stint.Limiter
	var q stint.Queue
	for name, call := range map[string]func() error{
		"Allow":       func() error { _, err := l.Allow(bg, "k"); return err },
		"AllowN":      func() error { _, err := l.AllowN(bg, "k", 0); return err },
		"AllowEach":   func() error { return l.AllowEach(bg, []string{"k"}, 1, make([]bool, 1)) },
		"Take":        func() error { _, err := l.Take(bg, "k", 1); return err },
		"Peek":        func() error { _, err := l.Peek(bg, "k", 1); return err },
		"TakeUpTo":    func() error { _, err := l.TakeUpTo(bg, "k", 1); return err },
		"Reserve":     func() error { _, _, err := l.Reserve(bg, "k", 1, time.Second); return err },
		"Refund":      func() error { _, err := l.Refund(bg, "k", 1); return err },
		"Reset":       func() error { return l.Reset(bg, "k") },
		"Wait":        func() error { return l.Wait(bg, "k", 1) },
		"WaitReserve": func() error { _, err := l.WaitReserve(bg, "k", 1, time.Second); return err },
		"SetLimits":   func() error { return l.SetLimits(stint.PerSecond(1)) },
		"All":         func() error { return stint.All(l.Key("k")).Wait(bg) },
		"no limiter":  func() error { _, err := stint.NewQueue(nil, "k", stint.QueueOptions{}); return err },
		"NewQueue":    func() error { _, err := stint.NewQueue(&l, "k", stint.QueueOptions{}); return err },
		"Reservation": func() error { _, err := l.Reservation("id").Settle(bg, 1); return err },
		"Cancel":      func() error { _, err := new(stint.Reservation).Cancel(bg); return err },
		"Do":          func() error { return q.Do(bg, func(context.Context) error { return nil }) },
		"Submit":      func() error { return q.Submit(func() {}) },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "makes one") && !strings.Contains(err.Error(), "returns one") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l.Name() != "" || len(l.Limits())+len(l.Labels()) != 0 || !l.Unchanged(nil) || q.Stats() != (stint.QueueStats{}) {
		t.Error("a limiter without limits has some")
	}
	q.Close()
}

// A request that is denied has a reservation that may be settled: that does nothing.
func TestDeniedReservation(t *testing.T) {
	l := limiterOf(t, "1/h")
	must(t, l, 1)
	_, one, err := l.Reserve(bg, "k", 1, time.Minute)
	_, all, err2 := stint.All(l.Key("k"), l.Key("other")).Reserve(bg, time.Minute)
	ctx, stop := context.WithTimeout(bg, time.Second)
	defer stop()
	waited, _ := l.WaitReserve(ctx, "k", 1, time.Minute)
	both, _ := stint.All(l.Key("k")).WaitReserve(ctx, time.Minute)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for _, r := range []*stint.Reservation{one, all, waited, both, l.Reservation("")} {
		d, err := r.Settle(bg, 5)
		cancelled, err2 := r.Cancel(bg)
		if err != nil || err2 != nil || d != (stint.Decision{}) || cancelled != d || r.ID() != "" {
			t.Errorf("%q: %v, %v", r.ID(), err, err2)
		}
	}
	if d, err := l.Peek(bg, "other", 1); err != nil || !d.Allowed {
		t.Errorf("what was denied has charged: %+v, %v", d, err)
	}
}
