package storetest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// oddKeys are keys that something could take for one another.
func oddKeys() []string {
	long := strings.Repeat("k", 1<<20)
	return []string{
		"", " ", "\x00", "\x00\x00", "\n", "\x7f", "\x80", "\xff", "\xff\xfe", "\xed\xa0\x80", "\ufffd",
		"a", "A", "a ", " a", "a\x00", "\x00a", "a:b", "a_b", "a/b", "a b", "{a}", "{a}b", "*", "?", "%s", "%00",
		"é", "e\u0301", "0", "00", "-1", "1e3", "nil", "null", "r1",
		long, long + "k", long[1:], "x" + long[1:], long[:1<<20-1] + "x",
	}
}

func keysAreApart(e *env) {
	for _, text := range []string{"2/1h", "7/2h burst 2", "2/1h sliding_log", "2/1h sliding_buckets"} {
		l := e.limit(text)
		for i, key := range oddKeys() {
			if d := e.take(l, key, 2); !d.Allowed || d.Remaining != 0 {
				e.Errorf("%s: key %d, %.20q: %+v", text, i, key, d)
			}
		}
		for i, key := range oddKeys() {
			if d := e.take(l, key, 1); d.Allowed {
				e.Errorf("%s: key %d, %.20q, was forgotten: %+v", text, i, key, d)
			}
			if i%2 == 0 {
				e.reset(l, key)
			}
		}
		for i, key := range oddKeys() {
			if d := e.peek(l, key, 2); d.Allowed != (i%2 == 0) {
				e.Errorf("%s: key %d, %.20q, after resets: %+v", text, i, key, d)
			}
		}
	}
}

// One key under all limits of the table at once is many states, and a limit
// under a name is another than the same limit without.
func limitsAreApart(e *env) {
	var all []limit
	for _, text := range limits {
		l := e.limit(text)
		named := l.WithName("name of " + text)
		all = append(all, l, limit{named, e.bind(named)})
	}
	for i, l := range all {
		if d := e.take(l, "key", l.Capacity()); !d.Allowed {
			e.Errorf("%v: %+v", l.Name(), d)
		}
		for _, later := range all[i+1:] {
			if d := e.peek(later, "key", later.Capacity()); !d.Allowed {
				e.Fatalf("%v took from %v: %+v", l.Name(), later.Name(), d)
			}
		}
	}
	again := e.limit(limits[0])
	if d := e.peek(again, "key", 1); d.Allowed {
		e.Errorf("%v bound again does not share its state: %+v", again.Name(), d)
	}
}

// A flood of keys that come and go makes a store forget no key that still counts. A key that is as if
// never seen answers alike, whether its state was forgotten or kept.
func forgettingIsLossless(e *env) {
	flood := e.part(500)
	var all []limit
	for _, text := range limits {
		all = append(all, e.limit(text))
	}
	for _, l := range all {
		e.take(l, "held", l.Capacity())
		e.advance(e.gap(l.Limit) / 1000)
	}
	before := make([]stint.Decision, len(all))
	for i, l := range all {
		before[i] = e.peek(l, "held", l.Capacity())
	}
	for i := range flood {
		for _, l := range all {
			e.take(l, fmt.Sprint("flood ", i), 1)
		}
	}
	for i, l := range all {
		e.equal(fmt.Sprintf("%v after a flood", l), e.peek(l, "held", l.Capacity()), before[i])
	}
	e.advance(70 * 24 * int64(time.Hour)) // all are as if never seen
	for i := range flood {
		for _, l := range all {
			e.take(l, fmt.Sprint("later flood ", i), 1)
		}
	}
	for _, l := range all {
		for _, key := range []string{"held", "flood 7", fmt.Sprint("flood ", flood-1)} {
			e.sameAnswers(fmt.Sprintf("%v long after", l), l, key, "never seen")
		}
	}
}

// filled returns a key that has used all there is.
func (e *env) filled(l limit) string {
	key := e.key("filled")
	e.take(l, key, l.Capacity())
	return key
}

func errorsAreReturned(e *env) {
	l := e.limit("5/s")
	other := e.suite.Open(e.TB, e.now.Load)
	defer other.Close()
	foreign, err := other.Bind(l.Limit.Name(), l.Limit)
	if err != nil {
		e.Fatal(err)
	}
	many := make([]stint.Layer, stint.MaxLimits+1)
	for i := range many {
		many[i] = stint.Layer{Bound: l.bound, Key: fmt.Sprint(i)}
	}
	named := e.bind(l.WithName("another name"))
	both := e.under(l.Name(), l.Limit, l.WithName("another ID"))
	for _, c := range []struct {
		what   string
		layers []stint.Layer
		cost   int64
		want   error
	}{
		{"good", one(l, "a"), 0, nil},
		{"as many layers as there may be", many[1:], 0, nil},
		{"one key under two names", []stint.Layer{{Bound: l.bound, Key: "a"}, {Bound: named, Key: "a"}}, 0, nil},
		{"below zero", one(l, "a"), -1, stint.ErrCost},
		{"far below zero", one(l, "a"), math.MinInt64, stint.ErrCost},
		{"no layers", nil, 1, stint.ErrLayers},
		{"too many layers", many, 1, stint.ErrLayers},
		{"a layer twice", []stint.Layer{{Bound: l.bound, Key: "a"}, {Bound: l.bound, Key: "b"}, {Bound: l.bound, Key: "a"}}, 1, stint.ErrLayers},
		{"another store's", []stint.Layer{{Bound: l.bound, Key: "a"}, {Bound: foreign, Key: "b"}}, 1, stint.ErrLayers},
		{"nobody's", []stint.Layer{{Key: "a"}}, 1, stint.ErrLayers},
		{"a weight below zero", []stint.Layer{{Bound: l.bound, Key: "a", Weight: -1}}, 1, stint.ErrCost},
		{"a weight far below zero", []stint.Layer{{Bound: l.bound, Key: "b"}, {Bound: l.bound, Key: "a", Weight: math.MinInt64}}, 0, stint.ErrCost},
		{"no room for answers", []stint.Layer{{Bound: l.bound, Key: "a", Answers: []stint.Decision{}}}, 1, stint.ErrLayers},
		{"room for one answer of two", []stint.Layer{{Bound: both, Key: "a", Answers: make([]stint.Decision, 1)}}, 1, stint.ErrLayers},
		{"more room than answers", []stint.Layer{{Bound: l.bound, Key: "a", Answers: make([]stint.Decision, 3)}}, 0, nil},
	} {
		for verb, err := range e.verbs(c.layers, c.cost) {
			if verb == "Reset" && c.cost < 0 {
				continue
			}
			if !errors.Is(err, c.want) {
				e.Errorf("%s, %s: %v; want %v", verb, c.what, err, c.want)
			}
		}
	}
	if _, err := l.bound.Decide(e.ctx, meter.OpTake, "a", -1); !errors.Is(err, stint.ErrCost) {
		e.Errorf("Bound.Decide: %v; want ErrCost", err)
	}
	if ok, err := l.bound.Allow(e.ctx, "a", -1); ok || !errors.Is(err, stint.ErrCost) {
		e.Errorf("Bound.Allow: %v, %v; want ErrCost", ok, err)
	}
	if _, err := e.store.Settle(e.ctx, "x", -1); !errors.Is(err, stint.ErrCost) {
		e.Errorf("Settle: %v; want ErrCost", err)
	}
	e.bindErrors()
	e.sameAnswers("after all errors", l, "a", "unseen")
	e.sameAnswers("after all errors", l, "b", "unseen")
}

func (e *env) bindErrors() {
	for what, bad := range map[string][]stint.Limit{
		"none":         nil,
		"zero":         {{}},
		"one bad":      {stint.PerSecond(1), stint.PerSecond(-1)},
		"one twice":    {stint.PerSecond(1), stint.New(1, time.Second)},
		"a name twice": {stint.PerSecond(1).WithName("x"), stint.PerSecond(2).WithName("x")},
		"too many":     make([]stint.Limit, stint.MaxLimits+1),
	} {
		for i := range bad {
			if what == "too many" {
				bad[i] = stint.PerSecond(int64(i) + 1)
			}
		}
		if b, err := e.store.Bind("bad", bad...); err == nil {
			e.Errorf("Bind of %s: %v", what, b.Limits())
		}
	}
	_, _, err := e.store.Reserve(e.ctx, one(e.limit("5/s"), "a"), 0, -time.Second)
	if err == nil {
		e.Errorf("Reserve with a time to live below zero: no error")
	}
}

// verbs tries every verb that has layers, and returns the errors.
func (e *env) verbs(layers []stint.Layer, cost int64) map[string]error {
	all := make(map[string]error)
	_, all["take"] = e.store.Decide(e.ctx, meter.OpTake, layers, cost)
	_, all["peek"] = e.store.Decide(e.ctx, meter.OpPeek, layers, cost)
	_, all["take up to"] = e.store.Decide(e.ctx, meter.OpTakeUpTo, layers, cost)
	_, _, all["Reserve"] = e.store.Reserve(e.ctx, layers, cost, time.Second)
	_, all["Refund"] = e.store.Refund(e.ctx, layers, cost)
	all["Reset"] = e.store.Reset(e.ctx, layers)
	return all
}

func closedIsClosed(e *env) {
	open := e.store
	store := e.suite.Open(e.TB, e.now.Load)
	e.store = store
	defer func() { e.store = open }()
	l := e.limit("5/s")
	_, id := e.reserve(l, "a", 1, time.Minute)
	if err := store.Close(); err != nil {
		e.Fatal(err)
	}
	all := e.verbs(one(l, "a"), 1)
	_, all["Settle"] = store.Settle(e.ctx, id, 1)
	_, all["Bind"] = store.Bind(l.Limit.Name(), l.Limit)
	_, all["Bound.Decide"] = l.bound.Decide(e.ctx, meter.OpTake, "a", 1)
	_, all["Bound.Allow"] = l.bound.Allow(e.ctx, "a", 1)
	for verb, err := range all {
		if !errors.Is(err, stint.ErrClosed) {
			e.Errorf("%s: %v; want ErrClosed", verb, err)
		}
	}
}

// A limit may be as large as an int64 holds. A store that cannot be exact with
// it refuses it; one that accepts it is.
func greatestValues(e *env) {
	for _, text := range []string{
		"9_223_372_036_854_775_807/1s",
		"9_223_372_036_854_775_807/1h leaky_queue burst 9_223_372_036_854_775_806",
		"9_223_372_036_854_775_807/1h token_bucket_interval",
		"9_223_372_036_854_775_807/1h fixed_window",
		"9_223_372_036_854_775_807/1h fixed_window from first",
		"9_223_372_036_854_775_807/1h sliding_counter",
		"9_223_372_036_854_775_807/1h sliding_counter relaxed",
		"9_223_372_036_854_775_807/1h sliding_buckets",
		"9_223_372_036_854_775_807 per month in UTC",
		"9_223_372_036_854_775_807 per year in Asia/Tokyo",
		"1/100000h",
		"1/1000000h fixed_window",
		"1/1000000h fixed_window from first",
		"5/1000000h sliding_counter",
		"5/1000000h sliding_buckets parts 3600",
	} {
		e.suite.with(e.TB, func(e *env) { greatest(e, text) })
	}
}

func greatest(e *env, text string) {
	parsed, err := stint.Parse(text)
	if err != nil {
		e.Fatal(err)
	}
	b, err := e.store.Bind(parsed.Name(), parsed)
	if err != nil {
		e.Logf("refused: %v", err)
		return
	}
	l, all := limit{parsed, b}, parsed.Capacity()
	for _, before := range []time.Duration{200 * 365 * 24 * time.Hour, 100 * 365 * 24 * time.Hour, time.Hour, 0} {
		if unit, _ := l.Calendar(); unit != "" && before == 0 {
			return // the last window ends when time does
		}
		now := math.MaxInt64 - int64(before)
		e.now.Store(now - now%e.quantum)
		heaviest(e, l)
		a := e.key("a")
		if d := e.take(l, a, all); !d.Allowed || d.Remaining != 0 || d.Taken != all || d.ResetAfter <= 0 {
			e.Errorf("%s, all of it at %d: %+v", text, now, d)
		}
		for _, cost := range []int64{1, all, math.MaxInt64} {
			if d := e.take(l, a, cost); d.Allowed || d.Remaining != 0 || d.RetryAfter == 0 {
				e.Errorf("%s, %d more at %d: %+v", text, cost, now, d)
			}
		}
		if d := e.refund(l, a, math.MaxInt64); d.Remaining != all {
			e.Errorf("%s, all refunded at %d: %+v", text, now, d)
		}
		if before == 0 {
			return // a reservation would end after time does
		}
		d, id := e.reserve(l, a, all, math.MaxInt64)
		if s := e.settle(id, math.MaxInt64); s.Remaining != 0 || !d.Allowed {
			e.Errorf("%s, in debt at %d: %+v after %+v", text, now, s, d)
		}
	}
}
