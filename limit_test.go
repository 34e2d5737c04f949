package stint_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

func TestLimitValidate(t *testing.T) {
	window := stint.PerSecond(10).WithAlgorithm(meter.FixedWindow)
	for _, c := range []struct {
		name  string
		limit stint.Limit
		want  string // a part of the error; empty if the limit can be held
	}{
		{"zero", stint.Limit{}, "count 0"},
		{"count 0", stint.PerSecond(0), "count 0"},
		{"count below zero", stint.PerSecond(-1), "count -1"},
		{"least count", stint.PerSecond(math.MinInt64), "count -9223372036854775808"},
		{"period 0", stint.New(1, 0), "period 0s"},
		{"period below zero", stint.New(1, -1), "period -1ns"},
		{"least period", stint.New(1, math.MinInt64), "period -2562047h47m16.854775808s"},
		{"every 0", stint.Every(0), "period 0s"},
		{"burst 0", stint.PerSecond(10).WithBurst(0), "burst 0"},
		{"burst below zero", stint.PerSecond(10).WithBurst(-1), "burst -1"},
		{"burst 0 of a queue", stint.PerSecond(10).WithBurst(0).WithAlgorithm(meter.LeakyQueue), ""},
		{"burst below zero of a queue", stint.PerSecond(10).WithBurst(-1).WithAlgorithm(meter.LeakyQueue), "burst -1"},
		{"burst 0 in lumps", stint.PerSecond(10).WithBurst(0).WithAlgorithm(meter.TokenBucketInterval), "burst 0"},
		{"burst of a window", window.WithBurst(5), "fixed_window has no burst"},
		{"burst of a window, its count", window.WithBurst(10), "fixed_window has no burst"},
		{"debt 0", stint.PerSecond(10).WithDebt(0), "debt 0"},
		{"debt below zero", stint.PerSecond(10).WithDebt(-1), "debt"},
		{"debt of a window", window.WithDebt(5), "fixed_window has no debt"},
		{"greatest debt", stint.PerSecond(math.MaxInt64).WithBurst(1).WithDebt(math.MaxInt64), ""},
		{"debt of more than 292 years", stint.PerSecond(10).WithDebt(math.MaxInt64), "debt × period ÷ count must stay below 292 years"},
		{"ban 0", stint.PerSecond(10).WithBan(0), "ban 0s: above 0 and at most 3650 days"},
		{"ban below zero", stint.PerSecond(10).WithBan(-1), "ban 0s"},
		{"longest ban", window.WithBan(meter.MaxBan), ""},
		{"too long a ban", window.WithBan(meter.MaxBan + 1), "ban 87600h0m0.000000001s"},
		{"parts of a bucket", stint.PerSecond(10).WithParts(5), "gcra has no parts"},
		{"parts of a bucket, the default", stint.PerSecond(10).WithParts(60), "gcra has no parts"},
		{"parts 0", window.WithAlgorithm(meter.SlidingSubWindows).WithParts(0), "parts 0"},
		{"parts below zero", window.WithAlgorithm(meter.SlidingSubWindows).WithParts(-5), "parts"},
		{"most parts", window.WithAlgorithm(meter.SlidingSubWindows).WithParts(3600), ""},
		{"too many parts", window.WithAlgorithm(meter.SlidingSubWindows).WithParts(3601), "parts 3601"},
		{"absurd parts", window.WithAlgorithm(meter.SlidingSubWindows).WithParts(math.MaxInt64), "parts 9223372036854775807"},
		{"more parts than nanoseconds", stint.New(1, 7).WithAlgorithm(meter.SlidingSubWindows), ""},
		{"relaxed bucket", stint.PerSecond(10).WithRelaxed(), "gcra has no relaxed: sliding_counter does"},
		{"count_denied of a bucket", stint.PerSecond(10).WithCountDenied(), "gcra has no count_denied"},
		{"count_denied of a queue", stint.PerSecond(10).WithAlgorithm(meter.LeakyQueue).WithCountDenied(), "leaky_queue has no count_denied"},
		{"from first", window.WithFromFirst(), ""},
		{"from first of a bucket", stint.PerSecond(10).WithFromFirst(), "gcra has no from first: fixed_window does"},
		{"from first by the calendar", stint.PerDayIn(5, "UTC").WithFromFirst(), "by the calendar or with the first request"},
		{"unknown algorithm", stint.PerSecond(10).WithAlgorithm(255), "algorithm(255)"},
		{"calendar", stint.PerDayIn(5, "Europe/Paris"), ""},
		{"calendar of another algorithm", stint.PerDayIn(5, "UTC").WithAlgorithm(meter.SlidingLog), "sliding_log has no calendar: fixed_window does"},
		{"calendar with a burst", stint.PerDayIn(5, "UTC").WithBurst(7), "fixed_window has no burst"},
		{"calendar without a zone", stint.PerDayIn(5, ""), "zone"},
		{"zone of the machine", stint.PerDayIn(5, "Local"), "zone"},
		{"no such zone", stint.PerMonthIn(5, "Mars/Olympus"), `unknown zone "Mars/Olympus"`},
		{"zone that is a path", stint.PerMonthIn(5, "../UTC"), "unknown zone"},
		{"zone that is a folder", stint.PerMonthIn(5, "Europe"), "unknown zone"},
		{"zone with a NUL", stint.PerMonthIn(5, "UTC\x00"), "unknown zone"},
		{"name", stint.PerSecond(1).WithName("API · 東京"), ""},
		{"longest name", stint.PerSecond(1).WithName(strings.Repeat("n", 256)), ""},
		{"name too long", stint.PerSecond(1).WithName(strings.Repeat("n", 257)), "name of 257 bytes"},
		{"name of a megabyte", stint.PerSecond(1).WithName(strings.Repeat("n", 1<<20)), "name of 1048576 bytes"},
		{"name with a newline", stint.PerSecond(1).WithName("a\nb"), "control characters"},
		{"name with a NUL", stint.PerSecond(1).WithName("\x00"), "control characters"},
		{"name with DEL", stint.PerSecond(1).WithName("a\x7f"), "control characters"},
		{"name with a C1 control", stint.PerSecond(1).WithName("a\u0085b"), "control characters"},
		{"name that is not UTF-8", stint.PerSecond(1).WithName("a\xffb"), "UTF-8"},
	} {
		err := c.limit.Validate()
		_, meterErr := c.limit.Meter()
		if (err == nil) != (meterErr == nil) {
			t.Errorf("%s: Validate says %v, Meter %v", c.name, err, meterErr)
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if err != nil && (len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\n\x00")) {
			t.Errorf("%s: an error of %d bytes: %.100q", c.name, len(err.Error()), err.Error())
		}
	}
}

// The greatest values: (B + 1)·T and 2W within int64 nanoseconds. Each pair is
// the last that can be held and the first that cannot.
func TestLimitGreatest(t *testing.T) {
	const most = math.MaxInt64
	for _, c := range []struct{ holds, fails stint.Limit }{
		{stint.New(1, most/2), stint.New(1, most/2+1)}, // (1 + 1)·T
		{stint.New(1, 1).WithBurst(most - 1), stint.New(1, 1).WithBurst(most)},
		{stint.New(1, 2).WithBurst(most/2 - 1), stint.New(1, 2).WithBurst(most / 2)},
		{stint.New(1, time.Second).WithBurst(most/1_000_000_000 - 1), stint.New(1, time.Second).WithBurst(most / 1_000_000_000)},
		{stint.New(2, most).WithBurst(1), stint.New(2, most).WithBurst(2)},
		{stint.New(most, most).WithBurst(most - 1), stint.New(most, most)},
		{stint.New(most, most-1), stint.New(most-1, most)},
		{stint.New(1, most).WithBurst(0).WithAlgorithm(meter.LeakyQueue), stint.New(1, most/2+1).WithBurst(1).WithAlgorithm(meter.LeakyQueue)},
		{stint.New(most, 1).WithBurst(most - 1).WithAlgorithm(meter.LeakyQueue), stint.New(most, 1).WithAlgorithm(meter.LeakyQueue)},
		{stint.New(1, most/2).WithAlgorithm(meter.TokenBucketInterval), stint.New(1, most/2+1).WithAlgorithm(meter.TokenBucketInterval)},
		{stint.New(most, most/2).WithAlgorithm(meter.TokenBucketInterval), stint.New(most, most/2+1).WithAlgorithm(meter.TokenBucketInterval)},
		{stint.New(most, most/2).WithAlgorithm(meter.FixedWindow), stint.New(1, most/2+1).WithAlgorithm(meter.FixedWindow)},
		{stint.New(most, most/2).WithAlgorithm(meter.SlidingLog), stint.New(1, most/2+1).WithAlgorithm(meter.SlidingLog)},
		{stint.New(most, most/2).WithAlgorithm(meter.SlidingCounter), stint.New(1, most/2+1).WithAlgorithm(meter.SlidingCounter)},
		{stint.New(most, most/2).WithAlgorithm(meter.SlidingSubWindows), stint.New(1, most/2+1).WithAlgorithm(meter.SlidingSubWindows)},
	} {
		if err := c.holds.Validate(); err != nil {
			t.Errorf("%v: %v", c.holds, err)
		}
		if err := c.fails.Validate(); err == nil {
			t.Errorf("%v can be held", c.fails)
		}
	}
}

func TestLimitCapacity(t *testing.T) {
	for text, want := range map[string]int64{
		"10/s":                               10,
		"10/s burst 25":                      25,
		"every 2s":                           1,
		"10/s burst 3 token_bucket_interval": 3,
		"10/s leaky_queue":                   11,
		"10/s burst 0 leaky_queue":           1,
		"10/s fixed_window":                  10,
		"10/day in UTC":                      10,
		"10/s sliding_log":                   10,
		"10/s sliding_counter":               10,
		"10/s sliding_counter relaxed":       10,
		"10/s sliding_buckets":               10,
		"1/s burst 9223372035 leaky_queue":   9223372036,
	} {
		l := parse(t, text)
		if got := l.Capacity(); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
		m, err := l.Meter()
		if err != nil {
			t.Fatal(err)
		}
		var d stint.Decision
		if d.Set(m, m.Answer(make([]uint64, m.Words()), 0, 0, true), true, 0); d.Limit != want || d.Remaining != want {
			t.Errorf("%s: unseen, the limit is %d and %d remain, want %d", text, d.Limit, d.Remaining, want)
		}
	}
}

func TestLimitName(t *testing.T) {
	l := stint.PerMinute(10)
	if l.Name() != "10/1m" || l.WithName("login").Name() != "login" {
		t.Error(l.Name(), l.WithName("login").Name())
	}
	if got := l.WithName("login").String(); got != "10/1m" {
		t.Errorf("a named limit prints as %q", got)
	}
	if l.WithName("login").WithName("") != l {
		t.Error("an empty name is not none")
	}
}

func TestLimitCalendar(t *testing.T) {
	for _, c := range []struct {
		limit      stint.Limit
		unit, zone string
		period     time.Duration
		text       string
	}{
		{stint.PerDayIn(5, "Europe/Paris"), "day", "Europe/Paris", 24 * time.Hour, "5/day in Europe/Paris"},
		{stint.PerMonthIn(5, "UTC"), "month", "UTC", 30 * 24 * time.Hour, "5/month in UTC"},
		{stint.PerIn(5, meter.MonthFrom(15), "UTC"), "month from 15", "UTC", 30 * 24 * time.Hour, "5/month from 15 in UTC"},
		{stint.PerIn(5, meter.MonthFrom(1), "UTC"), "month", "UTC", 30 * 24 * time.Hour, "5/month in UTC"},
		{stint.PerIn(5, meter.Week, "UTC"), "week", "UTC", 7 * 24 * time.Hour, "5/week in UTC"},
		{stint.New(5, 24*time.Hour).WithAlgorithm(meter.FixedWindow), "", "", 24 * time.Hour, "5/24h fixed_window"},
	} {
		unit, zone := c.limit.Calendar()
		if unit != c.unit || zone != c.zone || c.limit.Period() != c.period || c.limit.String() != c.text {
			t.Errorf("%v: %q %q %v", c.limit, unit, zone, c.limit.Period())
		}
	}
}

// Limits are values: comparable, and never changed by a With.
func TestLimitComparable(t *testing.T) {
	seen := map[stint.Limit]string{}
	for _, c := range accepted {
		l := parse(t, c.text)
		if text, ok := seen[l]; ok && text != c.canonical {
			t.Errorf("%q and %q are one limit", text, c.canonical)
		}
		seen[l] = c.canonical
	}
	base := stint.PerSecond(10)
	kept := base
	_ = base.WithBurst(5).WithName("x").WithAlgorithm(meter.SlidingSubWindows).WithParts(5).WithRelaxed().WithCountDenied()
	if base != kept {
		t.Errorf("%+v became %+v", kept, base)
	}
	if base.WithBurst(5).WithBurst(10) != base {
		t.Error("a burst set back to the count is not the count")
	}
}

func TestKindString(t *testing.T) {
	for algorithm, want := range map[meter.Algorithm]string{
		meter.GCRA: "gcra", meter.TokenBucketInterval: "token_bucket_interval", meter.LeakyQueue: "leaky_queue",
		meter.FixedWindow: "fixed_window", meter.SlidingLog: "sliding_log", meter.SlidingCounter: "sliding_counter",
		meter.SlidingSubWindows: "sliding_buckets", 255: "algorithm(255)",
	} {
		if got := algorithm.String(); got != want {
			t.Errorf("%d: %q, want %q", algorithm, got, want)
		}
	}
}

// TestWith holds a key to other limits, under which it keeps what it has used.
func TestWith(t *testing.T) {
	store := memstore.New(memstore.Options{Now: func() int64 { return 1 }})
	defer store.Close()
	free := made.Limiter(t, store, "api", stint.PerHour(2))
	pro, err := free.With(stint.PerHour(10))
	if err != nil || pro.Name() != "api" {
		t.Fatal(pro, err)
	}
	for i, want := range []int64{9, 8, 7} {
		if d, err := pro.Take(t.Context(), "k", 1); err != nil || d.Remaining != want {
			t.Errorf("%d: %+v, %v", i, d, err)
		}
	}
	if d, err := free.Take(t.Context(), "k", 1); err != nil || d.Allowed {
		t.Errorf("under 2 an hour after 3: %+v, %v", d, err)
	}
	if _, err := free.With(stint.PerHour(0)); err == nil {
		t.Error("no error of a limit that cannot be held")
	}
	if _, err := new(stint.Limiter).With(stint.PerHour(1)); err == nil {
		t.Error("no error of a limiter that NewLimiter did not make")
	}
}
