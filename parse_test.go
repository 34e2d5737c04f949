package stint_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/meter"
)

// parse is Parse of a text that has to be right.
func parse(t testing.TB, text string) stint.Limit {
	t.Helper()
	return made.Limit(t, text)
}

// fields is what a limit's accessors say, for comparing at a glance.
type fields struct {
	algorithm meter.Algorithm
	count     int64
	period    time.Duration
	burst     int64
	debt      int64
	ban       time.Duration
	parts     int64
	relaxed   bool
	denied    bool
	first     bool
	unit      string
	zone      string
}

func fieldsOf(l stint.Limit) fields {
	unit, zone := l.Calendar()
	return fields{l.Algorithm(), l.Count(), l.Period(), l.Burst(), l.Debt(), l.Ban(), l.Parts(), l.Relaxed(), l.CountDenied(), l.FromFirst(), unit, zone}
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// Every form of the grammar of docs/SEMANTICS.md, the canonical text that it
// prints as, and what it holds.
var accepted = []struct {
	text, canonical string
	want            fields
}{
	// COUNT "/" PERIOD and COUNT " per " PERIOD, every unit by every name.
	{"10/s", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	// As people write it elsewhere.
	{"10/sec", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"10/secs", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"100/min", "100/1m", fields{count: 100, period: time.Minute, burst: 100}},
	{"100/mins", "100/1m", fields{count: 100, period: time.Minute, burst: 100}},
	{"100 per min", "100/1m", fields{count: 100, period: time.Minute, burst: 100}},
	{"100/5min", "100/5m", fields{count: 100, period: 5 * time.Minute, burst: 100}},
	{"100/5 mins", "100/5m", fields{count: 100, period: 5 * time.Minute, burst: 100}},
	{"7/hr", "7/1h", fields{count: 7, period: time.Hour, burst: 7}},
	{"7/2hrs", "7/2h", fields{count: 7, period: 2 * time.Hour, burst: 7}},
	{"10 req/s", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"10 requests/sec", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"10 reqs per second", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"1 request per second", "1/1s", fields{count: 1, period: time.Second, burst: 1}},
	{"10 req / s", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"10 / s", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"10 /s", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"1k/s", "1000/1s", fields{count: 1000, period: time.Second, burst: 1000}},
	{"1K/s", "1000/1s", fields{count: 1000, period: time.Second, burst: 1000}},
	{"10/S", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"1K/H", "1000/1h", fields{count: 1000, period: time.Hour, burst: 1000}},
	{"10/5S", "10/5s", fields{count: 10, period: 5 * time.Second, burst: 10}},
	{"10 per Minute", "10/1m", fields{count: 10, period: time.Minute, burst: 10}},
	{"100/MIN burst 5", "100/1m burst 5", fields{count: 100, period: time.Minute, burst: 5}},
	{"7/D", "7/24h", fields{count: 7, period: day, burst: 7}},
	{"2M/h", "2000000/1h", fields{count: 2000000, period: time.Hour, burst: 2000000}},
	{"1,000/h", "1000/1h", fields{count: 1000, period: time.Hour, burst: 1000}},
	{"12,345,678/h", "12345678/1h", fields{count: 12345678, period: time.Hour, burst: 12345678}},
	{"1,000k req/min", "1000000/1m", fields{count: 1000000, period: time.Minute, burst: 1000000}},
	{"10/s burst 1k", "10/1s burst 1000", fields{count: 10, period: time.Second, burst: 1000}},
	{"10/second", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"10/seconds", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"10/m", "10/1m", fields{count: 10, period: time.Minute, burst: 10}},
	{"10 per minute", "10/1m", fields{count: 10, period: time.Minute, burst: 10}},
	{"10 per minutes", "10/1m", fields{count: 10, period: time.Minute, burst: 10}},
	{"10/h", "10/1h", fields{count: 10, period: time.Hour, burst: 10}},
	{"10 per hour", "10/1h", fields{count: 10, period: time.Hour, burst: 10}},
	{"10/hours", "10/1h", fields{count: 10, period: time.Hour, burst: 10}},
	{"10/d", "10/24h", fields{count: 10, period: day, burst: 10}},
	{"10 per day", "10/24h", fields{count: 10, period: day, burst: 10}},
	{"10/days", "10/24h", fields{count: 10, period: day, burst: 10}},
	{"10/w", "10/168h", fields{count: 10, period: week, burst: 10}},
	{"10 per week", "10/168h", fields{count: 10, period: week, burst: 10}},
	{"10/weeks", "10/168h", fields{count: 10, period: week, burst: 10}},
	// [N [" "]] before the unit.
	{"10 per 2 hours", "10/2h", fields{count: 10, period: 2 * time.Hour, burst: 10}},
	{"10 per 2hours", "10/2h", fields{count: 10, period: 2 * time.Hour, burst: 10}},
	{"10/2 hours", "10/2h", fields{count: 10, period: 2 * time.Hour, burst: 10}},
	{"10/1_000s", "10/16m40s", fields{count: 10, period: 1000 * time.Second, burst: 10}},
	{"10/1 days", "10/24h", fields{count: 10, period: day, burst: 10}},
	{"10 per 90 s", "10/1m30s", fields{count: 10, period: 90 * time.Second, burst: 10}},
	{"1/7625 weeks", "1/1281000h", fields{count: 1, period: 7625 * week, burst: 1}},
	// Go durations of whole nanoseconds.
	{"10/1h30m", "10/1h30m", fields{count: 10, period: 90 * time.Minute, burst: 10}},
	{"10/90s", "10/1m30s", fields{count: 10, period: 90 * time.Second, burst: 10}},
	{"10/100ms", "10/100ms", fields{count: 10, period: 100 * time.Millisecond, burst: 10}},
	{"10/1ns", "10/1ns", fields{count: 10, period: 1, burst: 10}},
	{"10/3us", "10/3µs", fields{count: 10, period: 3000, burst: 10}},
	{"10/3µs", "10/3µs", fields{count: 10, period: 3000, burst: 10}}, // U+00B5
	{"10/3μs", "10/3µs", fields{count: 10, period: 3000, burst: 10}}, // U+03BC
	{"10/1.5s", "10/1.5s", fields{count: 10, period: 1500 * time.Millisecond, burst: 10}},
	{"10/.5s", "10/500ms", fields{count: 10, period: 500 * time.Millisecond, burst: 10}},
	{"10/0.000000001s", "10/1ns", fields{count: 10, period: 1, burst: 10}},
	{"10/1.0000000000000000000000s", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"1/0.0000000000025h", "1/9ns", fields{count: 1, period: 9, burst: 1}},
	{"10/0.5s", "10/500ms", fields{count: 10, period: 500 * time.Millisecond, burst: 10}},
	{"10/0h5m", "10/5m", fields{count: 10, period: 5 * time.Minute, burst: 10}},
	{"1/4611686018427387903ns", "1/1281023h53m38.427387903s", fields{count: 1, period: math.MaxInt64 / 2, burst: 1}},
	// every.
	{"every 2s", "1/2s", fields{count: 1, period: 2 * time.Second, burst: 1}},
	{"every 1h30m", "1/1h30m", fields{count: 1, period: 90 * time.Minute, burst: 1}},
	// Counts.
	{"1_000_000/h", "1000000/1h", fields{count: 1_000_000, period: time.Hour, burst: 1_000_000}},
	{"007/s", "7/1s", fields{count: 7, period: time.Second, burst: 7}},
	{"9223372036854775807/s", "9223372036854775807/1s", fields{count: math.MaxInt64, period: time.Second, burst: math.MaxInt64}},
	// Kinds by all their names.
	{"10/s gcra", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"10/s token_bucket", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"10/s leaky_bucket", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"10/s token_bucket_interval", "10/1s token_bucket_interval", fields{algorithm: meter.TokenBucketInterval, count: 10, period: time.Second, burst: 10}},
	{"10/s leaky_queue", "10/1s leaky_queue", fields{algorithm: meter.LeakyQueue, count: 10, period: time.Second, burst: 10}},
	{"10/s fixed_window", "10/1s fixed_window", fields{algorithm: meter.FixedWindow, count: 10, period: time.Second}},
	{"10/s sliding_log", "10/1s sliding_log", fields{algorithm: meter.SlidingLog, count: 10, period: time.Second}},
	{"10/s sliding_counter", "10/1s sliding_counter", fields{algorithm: meter.SlidingCounter, count: 10, period: time.Second}},
	{"10/s sliding_buckets", "10/1s sliding_buckets", fields{algorithm: meter.SlidingSubWindows, count: 10, period: time.Second, parts: 60}},
	{"10/s from first fixed_window", "10/1s fixed_window from first", fields{algorithm: meter.FixedWindow, count: 10, period: time.Second, first: true}},
	{"10 per 15 minutes fixed_window count_denied from first ban 1h", "10/15m fixed_window from first count_denied ban 1h", fields{algorithm: meter.FixedWindow, count: 10, period: 15 * time.Minute, denied: true, first: true, ban: time.Hour}},
	{"10 per day fixed_window", "10/24h fixed_window", fields{algorithm: meter.FixedWindow, count: 10, period: day}},
	// Options, in any order.
	{"10/s burst 20", "10/1s burst 20", fields{count: 10, period: time.Second, burst: 20}},
	{"10/s burst 1_000", "10/1s burst 1000", fields{count: 10, period: time.Second, burst: 1000}},
	{"10/s burst 10", "10/1s", fields{count: 10, period: time.Second, burst: 10}},
	{"10/s burst 20 gcra", "10/1s burst 20", fields{count: 10, period: time.Second, burst: 20}},
	{"10/s leaky_queue burst 0", "10/1s burst 0 leaky_queue", fields{algorithm: meter.LeakyQueue, count: 10, period: time.Second}},
	{"10/s burst 5 token_bucket_interval", "10/1s burst 5 token_bucket_interval", fields{algorithm: meter.TokenBucketInterval, count: 10, period: time.Second, burst: 5}},
	{"100_000/m debt 1M burst 50_000", "100000/1m burst 50000 debt 1000000", fields{count: 100_000, period: time.Minute, burst: 50_000, debt: 1_000_000}},
	{"10/s debt 10", "10/1s debt 10", fields{count: 10, period: time.Second, burst: 10, debt: 10}},
	{"10/s debt 1 leaky_queue", "10/1s debt 1 leaky_queue", fields{algorithm: meter.LeakyQueue, count: 10, period: time.Second, burst: 10, debt: 1}},
	{"10/m sliding_buckets parts 6", "10/1m sliding_buckets parts 6", fields{algorithm: meter.SlidingSubWindows, count: 10, period: time.Minute, parts: 6}},
	{"10/m parts 3_600 sliding_buckets", "10/1m sliding_buckets parts 3600", fields{algorithm: meter.SlidingSubWindows, count: 10, period: time.Minute, parts: 3600}},
	{"10/m sliding_buckets parts 60", "10/1m sliding_buckets", fields{algorithm: meter.SlidingSubWindows, count: 10, period: time.Minute, parts: 60}},
	{"10/1m sliding_counter relaxed", "10/1m sliding_counter relaxed", fields{algorithm: meter.SlidingCounter, count: 10, period: time.Minute, relaxed: true}},
	{"10/m count_denied relaxed sliding_counter", "10/1m sliding_counter relaxed count_denied", fields{algorithm: meter.SlidingCounter, count: 10, period: time.Minute, relaxed: true, denied: true}},
	{"500/h sliding_log count_denied", "500/1h sliding_log count_denied", fields{algorithm: meter.SlidingLog, count: 500, period: time.Hour, denied: true}},
	{"5/s count_denied fixed_window", "5/1s fixed_window count_denied", fields{algorithm: meter.FixedWindow, count: 5, period: time.Second, denied: true}},
	{"5/s parts 3 count_denied sliding_buckets", "5/1s sliding_buckets parts 3 count_denied", fields{algorithm: meter.SlidingSubWindows, count: 5, period: time.Second, parts: 3, denied: true}},
	{"5 per minute ban 1h", "5/1m ban 1h", fields{count: 5, period: time.Minute, burst: 5, ban: time.Hour}},
	{"5/m ban 90s burst 3", "5/1m burst 3 ban 1m30s", fields{count: 5, period: time.Minute, burst: 3, ban: 90 * time.Second}},
	{"5/m ban 2 days sliding_log count_denied", "5/1m sliding_log count_denied ban 48h", fields{algorithm: meter.SlidingLog, count: 5, period: time.Minute, denied: true, ban: 2 * day}},
	{"5/m ban day", "5/1m ban 24h", fields{count: 5, period: time.Minute, burst: 5, ban: day}},
	{"5/day in UTC ban 3650d", "5/day in UTC ban 87600h", fields{algorithm: meter.FixedWindow, count: 5, period: day, unit: "day", zone: "UTC", ban: 3650 * day}},
	// Calendars.
	{"100 per day in Europe/Paris", "100/day in Europe/Paris", fields{algorithm: meter.FixedWindow, count: 100, period: day, unit: "day", zone: "Europe/Paris"}},
	{"1_000_000 per month in UTC", "1000000/month in UTC", fields{algorithm: meter.FixedWindow, count: 1_000_000, period: 30 * day, unit: "month", zone: "UTC"}},
	{"5/day count_denied in UTC", "5/day count_denied in UTC", fields{algorithm: meter.FixedWindow, count: 5, period: day, denied: true, unit: "day", zone: "UTC"}},
	{"5 per week in UTC", "5/week in UTC", fields{algorithm: meter.FixedWindow, count: 5, period: 7 * day, unit: "week", zone: "UTC"}},
	{"5 per week fixed_window", "5/168h fixed_window", fields{algorithm: meter.FixedWindow, count: 5, period: 7 * day}},
	{"5 per Quarter in UTC", "5/quarter in UTC", fields{algorithm: meter.FixedWindow, count: 5, period: 90 * day, unit: "quarter", zone: "UTC"}},
	{"5/year in Asia/Tokyo", "5/year in Asia/Tokyo", fields{algorithm: meter.FixedWindow, count: 5, period: 365 * day, unit: "year", zone: "Asia/Tokyo"}},
	{"5 per month from 15 in UTC", "5/month from 15 in UTC", fields{algorithm: meter.FixedWindow, count: 5, period: 30 * day, unit: "month from 15", zone: "UTC"}},
	{"5/month in UTC count_denied from 31", "5/month from 31 count_denied in UTC", fields{algorithm: meter.FixedWindow, count: 5, period: 30 * day, denied: true, unit: "month from 31", zone: "UTC"}},
	{"5/month from 1 in UTC", "5/month in UTC", fields{algorithm: meter.FixedWindow, count: 5, period: 30 * day, unit: "month", zone: "UTC"}},
	{"5/Day in UTC", "5/day in UTC", fields{algorithm: meter.FixedWindow, count: 5, period: day, unit: "day", zone: "UTC"}},
	{"5 per MONTH in UTC", "5/month in UTC", fields{algorithm: meter.FixedWindow, count: 5, period: 30 * day, unit: "month", zone: "UTC"}},
	{"5/month in UTC fixed_window", "5/month in UTC", fields{algorithm: meter.FixedWindow, count: 5, period: 30 * day, unit: "month", zone: "UTC"}},
	{"5/day in America/Argentina/ComodRivadavia", "5/day in America/Argentina/ComodRivadavia", fields{algorithm: meter.FixedWindow, count: 5, period: day, unit: "day", zone: "America/Argentina/ComodRivadavia"}},
	{"5/day in Etc/GMT+12", "5/day in Etc/GMT+12", fields{algorithm: meter.FixedWindow, count: 5, period: day, unit: "day", zone: "Etc/GMT+12"}},
	// In flight.
	{"20 in flight", "20 in flight", fields{count: 20, burst: 20}},
	{"1k requests in Flight", "1000 in flight", fields{count: 1000, burst: 1000}},
	// Blanks do not matter.
	{"  10/s\t burst   20 ", "10/1s burst 20", fields{count: 10, period: time.Second, burst: 20}},
	{"\t10\tper\tminute", "10/1m", fields{count: 10, period: time.Minute, burst: 10}},
}

func TestParse(t *testing.T) {
	for _, c := range accepted {
		l, err := stint.Parse(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if got := l.String(); got != c.canonical {
			t.Errorf("%q prints as %q, want %q", c.text, got, c.canonical)
		}
		if got := fieldsOf(l); got != c.want {
			t.Errorf("%q holds\n%+v, want\n%+v", c.text, got, c.want)
		}
		if l.Name() != c.canonical {
			t.Errorf("%q is named %q, not by its text", c.text, l.Name())
		}
		if again, err := stint.Parse(c.canonical); err != nil || again != l {
			t.Errorf("%q parses to %+v, %v, want %+v", c.canonical, again, err, l)
		}
	}
}

// A limit that is built is the value that its text is.
func TestParseEqualsBuilt(t *testing.T) {
	for text, built := range map[string]stint.Limit{
		"100/s burst 200":                        stint.PerSecond(100).WithBurst(200),
		"100/s":                                  stint.PerSecond(100),
		"100/s burst 100":                        stint.PerSecond(100).WithBurst(100),
		"100/s token_bucket":                     stint.PerSecond(100).WithAlgorithm(meter.GCRA),
		"6 per minute":                           stint.PerMinute(6),
		"6 per hour":                             stint.PerHour(6),
		"6/90ms":                                 stint.New(6, 90*time.Millisecond),
		"every 2s":                               stint.Every(2 * time.Second),
		"10/s leaky_queue burst 0":               stint.PerSecond(10).WithAlgorithm(meter.LeakyQueue).WithBurst(0),
		"10/s debt 30 burst 20":                  stint.PerSecond(10).WithDebt(30).WithBurst(20),
		"10/m sliding_buckets":                   stint.PerMinute(10).WithAlgorithm(meter.SlidingSubWindows),
		"10/m sliding_buckets parts 60":          stint.PerMinute(10).WithParts(60).WithAlgorithm(meter.SlidingSubWindows),
		"10/m sliding_buckets parts 6":           stint.PerMinute(10).WithParts(6).WithAlgorithm(meter.SlidingSubWindows),
		"10/m sliding_counter relaxed":           stint.PerMinute(10).WithAlgorithm(meter.SlidingCounter).WithRelaxed(),
		"100 per hour fixed_window from first":   stint.PerHour(100).WithAlgorithm(stint.FixedWindow).WithFromFirst(),
		"500/h sliding_log count_denied":         stint.PerHour(500).WithAlgorithm(meter.SlidingLog).WithCountDenied(),
		"5/m ban 1h burst 3":                     stint.PerMinute(5).WithBurst(3).WithBan(time.Hour),
		"100/day in Europe/Paris":                stint.PerDayIn(100, "Europe/Paris"),
		"100/month in UTC":                       stint.PerMonthIn(100, "UTC"),
		"20 in flight":                           stint.InFlight(20),
		"100/day in UTC count_denied":            stint.PerDayIn(100, "UTC").WithCountDenied(),
		"10/s token_bucket_interval burst 3":     stint.PerSecond(10).WithBurst(3).WithAlgorithm(meter.TokenBucketInterval),
		"9223372036854775807/9223372036854775ns": stint.New(math.MaxInt64, 9223372036854775),
	} {
		l, err := stint.Parse(text)
		if err != nil || l != built {
			t.Errorf("%q: %+v, %v, want %+v", text, l, err, built)
		}
	}
}

// Whatever can be built and held prints as text that parses to the same limit.
func TestPrintParse(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	held := 0
	for range 20_000 {
		l := randomLimit(rnd)
		if l.Validate() != nil {
			continue
		}
		held++
		text := l.String()
		back, err := stint.Parse(text)
		if err != nil || back != l || back.String() != text {
			t.Fatalf("%q parses to %+v, %v, want %+v", text, back, err, l)
		}
	}
	if held < 2000 {
		t.Errorf("only %d of 20,000 could be held", held)
	}
}

// randomLimit returns a limit that may or may not be one that can be held.
func randomLimit(rnd *rand.Rand) stint.Limit {
	number := func() int64 { return rnd.Int64() >> rnd.IntN(63) }
	if rnd.IntN(10) == 0 {
		zone := []string{"UTC", "Europe/Paris", "Etc/GMT-14"}[rnd.IntN(3)]
		l := stint.PerDayIn(number(), zone)
		if rnd.IntN(2) == 0 {
			l = stint.PerMonthIn(number(), zone)
		}
		if rnd.IntN(2) == 0 {
			l = l.WithCountDenied()
		}
		return l
	}
	l := stint.New(number(), time.Duration(number())).WithAlgorithm(meter.Algorithm(rnd.IntN(7)))
	if rnd.IntN(3) == 0 {
		l = l.WithBurst(number())
	}
	if rnd.IntN(4) == 0 {
		l = l.WithDebt(number())
	}
	if rnd.IntN(4) == 0 {
		l = l.WithBan(time.Duration(number()))
	}
	if l.Algorithm() == meter.SlidingSubWindows && rnd.IntN(2) == 0 {
		l = l.WithParts(number() % 4000)
	}
	if l.Algorithm() == meter.SlidingCounter && rnd.IntN(2) == 0 {
		l = l.WithRelaxed()
	}
	if l.Algorithm() == meter.FixedWindow && rnd.IntN(2) == 0 {
		l = l.WithFromFirst()
	}
	if l.Algorithm() >= meter.FixedWindow && rnd.IntN(2) == 0 {
		l = l.WithCountDenied()
	}
	return l
}

// testdata/parse_errors.txt holds what is said about texts that are wrong:
// the text (quoted as in Go where it would not be readable), "----", the
// error. "go test -run TestParseErrors -update ." writes it anew.
func TestParseErrors(t *testing.T) {
	golden.Play(t, "testdata/parse_errors.txt", "\n\n", func(text string) string {
		raw := text
		if strings.HasPrefix(text, `"`) {
			var err error
			if raw, err = strconv.Unquote(text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
		return wrong(t, raw)
	})
}

// wrong returns what is said about a text that is wrong, having checked what
// every such error must be.
func wrong(t testing.TB, text string) string {
	t.Helper()
	l, err := stint.Parse(text)
	if err == nil {
		t.Errorf("%.100q is accepted, as %v", text, l)
		return ""
	}
	if l != (stint.Limit{}) {
		t.Errorf("%.100q: %v comes with a limit, %v", text, err, l)
	}
	var pe *stint.ParseError
	if errors.As(err, &pe) {
		switch {
		case pe.Text != text:
			t.Errorf("%.100q: the error is about %.100q", text, pe.Text)
		case pe.Offset < 0 || pe.Offset > len(text):
			t.Errorf("%.100q: offset %d is not in the text", text, pe.Offset)
		case pe.Reason == "":
			t.Errorf("%.100q: no reason", text)
		}
	}
	if msg := err.Error(); strings.ContainsAny(msg, "\n\x00") || !strings.HasPrefix(msg, "stint: ") {
		t.Errorf("%.100q: %q is not one line of stint's", text, msg)
	}
	return err.Error()
}

// An error about a megabyte says so without repeating it, and soon.
func TestParseMegabytes(t *testing.T) {
	const mega = 1 << 20
	for name, text := range map[string]string{
		"one word":       strings.Repeat("x", mega),
		"digits":         strings.Repeat("9", mega),
		"zeros":          strings.Repeat("0", mega) + "/s",
		"blanks":         strings.Repeat(" ", mega),
		"period":         "10/" + strings.Repeat("1", mega),
		"fraction":       "10/1." + strings.Repeat("3", mega) + "s",
		"option":         "10/s " + strings.Repeat("o", mega),
		"options":        "10/s " + strings.Repeat("gcra ", mega/5),
		"zone":           "10/day in " + strings.Repeat("z", mega),
		"zone of dots":   "10/day in " + strings.Repeat("./", 1500) + "UTC",
		"zone of slashs": "10/day in Europe" + strings.Repeat("/", 3000) + "Paris",
		"binary":         strings.Repeat("\xff\x00", mega/2),
	} {
		begin := time.Now()
		if msg := wrong(t, text); len(msg) > 1000 {
			t.Errorf("%s: the message has %d bytes", name, len(msg))
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("%s: takes %v", name, took)
		}
	}
}

func TestParseErrorText(t *testing.T) {
	for _, c := range []struct {
		err  stint.ParseError
		want string
	}{
		{stint.ParseError{Text: "10/x", Offset: 3, Reason: "bad", Hint: "write s"}, `stint: limit "10/x", column 4: bad; write s`},
		{stint.ParseError{Text: "a\tb", Offset: 0, Reason: "bad"}, `stint: limit "a\tb", column 1: bad`},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// FuzzParse holds that no text panics, that what is accepted prints as text
// that parses to the same limit and makes a meter, and that an error says
// where. The seeds are under testdata/fuzz.
func FuzzParse(f *testing.F) {
	for _, c := range accepted {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := stint.Parse(text)
		if err != nil {
			wrong(t, text)
			return
		}
		printed := l.String()
		back, err := stint.Parse(printed)
		if err != nil || back != l || back.String() != printed {
			t.Fatalf("%q prints as %q, which is %+v, %v, not %+v", text, printed, back, err, l)
		}
		if _, err := l.Meter(); (err != nil) != l.InFlight() {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

// What an error quotes of a long text ends between two characters.
func TestParseQuotesCharacters(t *testing.T) {
	for n := range 4 {
		text := strings.Repeat("a", n) + strings.Repeat("ü", 60)
		if _, err := stint.Parse(text); err == nil || strings.Contains(err.Error(), `\x`) {
			t.Errorf("%v", err)
		}
	}
}
