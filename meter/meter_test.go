package meter_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/meter"
)

func meterOf(t testing.TB, limit string) *meter.Meter {
	t.Helper()
	l := made.Limit(t, limit)
	m, err := l.Meter()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A key is a meter and the state of one key, which grows as a store's would.
type key struct {
	*meter.Meter
	s    []uint64
	open meter.Reservations
	held []reserved
}

// An answer is what a meter says of a request, and whether it passes.
type answer struct {
	meter.Answer
	Allowed bool
}

// reserved is a charge that may be settled at less.
type reserved struct {
	mark meter.ChargeRef
	cost int64
}

func keyOf(m *meter.Meter) *key { return &key{Meter: m, s: make([]uint64, m.Words())} }

func (k *key) clone() *key { return &key{Meter: k.Meter, s: slices.Clone(k.s)} }

func (k *key) room(now, cost int64) {
	if need := k.Room(k.s, now, cost); need > len(k.s) {
		s := make([]uint64, need)
		k.Move(s, k.s)
		k.s = s
	}
}

func (k *key) take(now, cost int64) answer {
	k.room(now, cost)
	a, ok := k.TakeAmong(&k.open, k.s, now, cost)
	return answer{a, ok}
}

// ask describes the state to a request that passes or does not.
func (k *key) ask(now, cost int64) answer {
	ok := k.admits(now, cost)
	return answer{k.Answer(k.s, now, cost, ok), ok}
}

func (k *key) charge(now, cost int64) {
	k.room(now, cost)
	k.ChargeAmong(&k.open, k.s, now, cost, false)
}

// reserve charges what may be settled later, whatever the time is then.
func (k *key) reserve(now, cost int64) {
	k.room(now, cost)
	mark := k.Reserve(&k.open, k.s, now, cost)
	k.held = append(k.held, reserved{mark, cost})
}

// settle settles the i-th of the reservations that are held.
func (k *key) settle(i int, now, actual int64) {
	r := k.held[i]
	k.held = slices.Delete(k.held, i, i+1)
	k.room(now, max(actual-r.cost, 0))
	k.Settle(&k.open, r.mark, k.s, now, r.cost, actual)
}

// giveBack gives back up to cost of the last reservation, if one is held.
func (k *key) giveBack(now, cost int64) {
	if i := len(k.held) - 1; i >= 0 {
		k.settle(i, now, max(k.held[i].cost-max(cost, 0), 0))
	}
}

func (k *key) admits(now, cost int64) bool { return k.Admits(k.s, now, cost) }

// level is what remains, and the time to reset, of the state as it stands.
func (k *key) level(now int64) (remaining int64, reset time.Duration) {
	d := k.Answer(k.s, now, 0, true)
	return d.Remaining, d.ResetAfter
}

// play runs a line such as "1s take 3" and describes what comes of it: "pass"
// or "deny" for take and peek, then what is left and the waits that are not 0.
// "give N" gives back from the last charge.
func (k *key) play(t testing.TB, line string) string {
	t.Helper()
	f := strings.Fields(line)
	at, err := time.ParseDuration(f[0])
	if err != nil {
		t.Fatal(err)
	}
	cost, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	now, d, out := int64(at), answer{}, ""
	switch f[1] {
	case "take":
		d = k.take(now, cost)
	case "peek":
		d = k.ask(now, cost)
	case "charge":
		k.reserve(now, cost)
	case "give":
		k.giveBack(now, cost)
	case "refund":
		k.Refund(k.s, now, cost)
	default:
		t.Fatalf("%q?", f[1])
	}
	switch {
	case f[1] != "take" && f[1] != "peek":
		d.Answer = k.Answer(k.s, now, 0, true)
	case d.Allowed:
		out = "pass, "
	default:
		out = "deny, "
	}
	out += fmt.Sprintf("%d left", d.Remaining)
	switch d.RetryAfter {
	case 0:
	case meter.Never:
		out += ", retry never"
	default:
		out += fmt.Sprintf(", retry %v", d.RetryAfter)
	}
	if d.ResetAfter != 0 {
		out += fmt.Sprintf(", reset %v", d.ResetAfter)
	}
	if d.Delay != 0 {
		out += fmt.Sprintf(", delay %v", d.Delay)
	}
	return out
}

// TestFullDebtReset asks for the time to reset of the greatest debt of a limit
// whose drain is nearly as long as an int64 of nanoseconds: it stays at the end.
func TestFullDebtReset(t *testing.T) {
	m := meterOf(t, "1/1ns burst 9223372036854775806 token_bucket_interval")
	state := make([]uint64, m.Words())
	m.Charge(state, 0, math.MaxInt64)
	m.Charge(state, 0, math.MaxInt64) // cut at 2^64 - 4 missing
	for _, c := range []struct{ at, reset, left int64 }{
		{0, math.MaxInt64, 0},
		{5e18, math.MaxInt64, 0},
		{math.MaxInt64 - 2, math.MaxInt64, 0},
		{math.MaxInt64 - 1, math.MaxInt64 - 1, 0},
		{math.MaxInt64, math.MaxInt64 - 2, 1},
	} {
		if d := m.Answer(state, c.at, 0, true); int64(d.ResetAfter) != c.reset || d.Remaining != c.left {
			t.Errorf("at %d: reset after %d, %d left, want %d and %d", c.at, d.ResetAfter, d.Remaining, c.reset, c.left)
		}
	}
}

// What each algorithm answers, worked out by hand from docs/SEMANTICS.md.
func TestMeter(t *testing.T) {
	for _, c := range []struct{ name, limit, script string }{
		{"a bucket", "5/s burst 3", `
			0s take 2: pass, 1 left, reset 400ms
			0s take 2: deny, 1 left, retry 200ms, reset 400ms
			0s peek 1: pass, 1 left, reset 400ms
			199999999ns take 2: deny, 1 left, retry 1ns, reset 200.000001ms
			200ms take 2: pass, 0 left, reset 600ms
			200ms take 4: deny, 0 left, retry never, reset 600ms
			200ms take 0: pass, 0 left, reset 600ms
			10s take 3: pass, 0 left, reset 600ms`},
		{"a bucket whose period does not divide", "7/1m", `
			0s take 7: pass, 0 left, reset 1m0s
			0s take 1: deny, 0 left, retry 8.571428572s, reset 1m0s
			8571428571ns take 1: deny, 0 left, retry 1ns, reset 51.428571429s
			8571428572ns take 1: pass, 0 left, reset 1m0s
			0s take 1: deny, 0 left, retry 17.142857143s, reset 1m8.571428572s
			60s take 6: pass, 0 left, reset 1m0s
			60s take 1: deny, 0 left, retry 8.571428572s, reset 1m0s`},
		{"debt of a bucket is one drain", "10/s", `
			0s charge 10: 0 left, reset 1s
			0s charge 9223372036854775807: 0 left, reset 2s
			0s take 1: deny, 0 left, retry 1.1s, reset 2s
			1100ms take 1: pass, 0 left, reset 1s`},
		{"a debt of its own", "10/s debt 25", `
			0s charge 10: 0 left, reset 1s
			0s charge 24: 0 left, reset 3.4s
			0s charge 9223372036854775807: 0 left, reset 3.5s
			0s take 1: deny, 0 left, retry 2.6s, reset 3.5s
			2600ms take 1: pass, 0 left, reset 1s`},
		{"a debt of less than a drain", "7/1m debt 2", `
			0s take 7: pass, 0 left, reset 1m0s
			0s charge 3: 0 left, reset 1m17.142857143s
			0s take 1: deny, 0 left, retry 25.714285715s, reset 1m17.142857143s`},
		{"a debt of lumps", "4/s burst 10 debt 1000 token_bucket_interval", `
			0s charge 400: 0 left, reset 1m40s
			0s charge 9223372036854775807: 0 left, reset 4m13s
			0s take 10: deny, 0 left, retry 4m13s, reset 4m13s`},
		{"a debt of a queue", "2/s burst 2 debt 5 leaky_queue", `
			0s charge 100: 0 left, reset 4s
			0s take 1: deny, 0 left, retry 3s, reset 4s`},
		{"giving back to a bucket", "10/s", `
			0s charge 4: 6 left, reset 400ms
			300ms give 4: 10 left
			300ms charge 2: 8 left, reset 200ms
			300ms take 3: pass, 5 left, reset 500ms
			400ms give 2: 8 left, reset 200ms
			400ms refund 9: 10 left
			400ms take 0: pass, 10 left`},
		{"a bucket filled in lumps", "4/s burst 10 token_bucket_interval", `
			0s take 10: pass, 0 left, reset 3s
			999999999ns take 1: deny, 0 left, retry 1ns, reset 2.000000001s
			1s take 5: deny, 4 left, retry 1s, reset 2s
			1s take 4: pass, 0 left, reset 3s
			1s charge 9: 0 left, reset 5s
			1s take 1: deny, 0 left, retry 3s, reset 5s
			1s give 9: 0 left, reset 3s
			9s take 11: deny, 10 left, retry never
			9s take 1: pass, 9 left, reset 1s`},
		{"a queue", "2/s burst 2 leaky_queue", `
			0s take 1: pass, 2 left, reset 500ms
			0s take 1: pass, 1 left, reset 1s, delay 500ms
			0s take 1: pass, 0 left, reset 1.5s, delay 1s
			0s take 1: deny, 0 left, retry 500ms, reset 1.5s
			500ms take 1: pass, 0 left, reset 1.5s, delay 1s
			5s take 3: pass, 0 left, reset 1.5s
			5s take 4: deny, 0 left, retry never, reset 1.5s`},
		{"a queue where none may wait", "3/s burst 0 leaky_queue", `
			0s take 1: pass, 0 left, reset 333.333334ms
			333333333ns take 1: deny, 0 left, retry 1ns, reset 1ns
			333333334ns take 1: pass, 0 left, reset 333.333334ms`},
		{"a window", "3/10s fixed_window", `
			9s take 3: pass, 0 left, reset 1s
			9s take 1: deny, 0 left, retry 1s, reset 1s
			9999999999ns take 1: deny, 0 left, retry 1ns, reset 1ns
			10s take 3: pass, 0 left, reset 10s
			10s charge 2: 0 left, reset 10s
			10s give 2: 0 left, reset 10s
			10s refund 1: 1 left, reset 10s
			20s give 2: 3 left`},
		{"a window that counts what it denies", "2/10s fixed_window count_denied", `
			0s take 3: deny, 0 left, retry never, reset 10s
			10s take 2: pass, 0 left, reset 10s
			19s take 1: deny, 0 left, retry 1s, reset 1s
			20s take 1: pass, 1 left, reset 10s`},
		{"a window from a first request", "3/10s fixed_window from first", `
			4s take 4: deny, 3 left, retry never
			9s take 2: pass, 1 left, reset 10s
			15s take 2: deny, 1 left, retry 4s, reset 4s
			7s take 1: pass, 0 left, reset 12s
			18999999999ns take 1: deny, 0 left, retry 1ns, reset 1ns
			21s take 3: pass, 0 left, reset 10s
			22s give 1: 0 left, reset 9s
			22s refund 3: 3 left
			25s charge 5: 0 left, reset 10s`},
		{"a log", "3/10s sliding_log", `
			0s take 1: pass, 2 left, reset 10s
			4s take 2: pass, 0 left, reset 10s
			4s take 2: deny, 0 left, retry 10s, reset 10s
			4s take 1: deny, 0 left, retry 6s, reset 10s
			9999999999ns take 1: deny, 0 left, retry 1ns, reset 4.000000001s
			10s take 1: pass, 0 left, reset 10s
			10s charge 2: 0 left, reset 10s
			10s give 1: 0 left, reset 10s
			14s give 9: 1 left, reset 6s
			14s refund 9: 3 left`},
		{"a log that counts what it denies", "2/10s sliding_log count_denied", `
			0s take 2: pass, 0 left, reset 10s
			5s take 1: deny, 0 left, retry 5s, reset 10s
			6s take 1: deny, 0 left, retry 9s, reset 10s
			7s take 9: deny, 0 left, retry never, reset 10s
			17s take 1: pass, 1 left, reset 10s`},
		{"a counter", "10/10s sliding_counter", `
			9s take 10: pass, 0 left, reset 11s
			10s take 1: deny, 0 left, retry 1s, reset 10s
			10999999999ns take 1: deny, 0 left, retry 1ns, reset 9.000000001s
			11s take 1: pass, 0 left, reset 19s
			15s take 4: pass, 0 left, reset 15s
			15s take 6: deny, 0 left, retry 7s, reset 15s
			20s take 5: pass, 0 left, reset 20s`},
		{"a relaxed counter", "10/10s sliding_counter relaxed", `
			9s take 10: pass, 0 left, reset 11s
			10s take 1: deny, 0 left, retry 1ns, reset 10s
			10000000001ns take 1: pass, 0 left, reset 19.999999999s`},
		{"parts", "4/10s sliding_buckets parts 5", `
			1s take 3: pass, 1 left, reset 11s
			3s take 1: pass, 0 left, reset 11s
			11999999999ns take 1: deny, 0 left, retry 1ns, reset 2.000000001s
			12s take 3: pass, 0 left, reset 12s
			12s take 4: deny, 0 left, retry 12s, reset 12s
			12s take 1: deny, 0 left, retry 2s, reset 12s
			14s charge 1: 0 left, reset 12s
			24s peek 4: deny, 3 left, retry 2s, reset 2s
			24s give 1: 4 left`},
		{"parts that do not divide", "2/10ns sliding_buckets parts 3", `
			3ns take 1: pass, 1 left, reset 11ns
			4ns take 1: pass, 0 left, reset 13ns
			13ns take 1: deny, 0 left, retry 1ns, reset 4ns
			14ns take 1: pass, 0 left, reset 13ns`},
		{"a window of years", "1/4611686018427387903ns fixed_window", `
			0s take 1: pass, 0 left, reset 1281023h53m38.427387903s
			1281023h53m38.427387902s take 1: deny, 0 left, retry 1ns, reset 1ns
			1281023h53m38.427387903s take 1: pass, 0 left, reset 1281023h53m38.427387903s`},
		{"as many as there are", "9223372036854775807/1s burst 9223372036854775806", `
			0s take 9223372036854775806: pass, 0 left, reset 1s
			0s take 9223372036854775807: deny, 0 left, retry never, reset 1s
			1ns take 9223372037: deny, 9223372036 left, retry 1ns, reset 999.999999ms`},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := keyOf(meterOf(t, c.limit))
			for line := range strings.Lines(strings.TrimSpace(c.script)) {
				do, want, _ := strings.Cut(strings.TrimSpace(line), ": ")
				if got := k.play(t, do); got != want {
					t.Errorf("%s\n got %s\nwant %s", do, got, want)
				}
			}
		})
	}
}

// greatest are limits at the ends of what can be held, and ordinary ones.
var greatest = []string{
	"10/s", "7/1m", "every 2s", "1/1ns burst 9223372036854775806", "1/4611686018427387903ns",
	"9223372036854775807/s debt 9223372036854775807", "7/1ns burst 1 debt 9223372036854775807",
	"1/1ns debt 9223372036854775807 token_bucket_interval",
	"9223372036854775807/s burst 9223372036854775806", "9223372036854775807/9223372036854775806ns",
	"9223372036854775807/9223372036854775807ns burst 9223372036854775806",
	"9223372036854775806/9223372036854775807ns burst 1",
	"3/s leaky_queue", "1/9223372036854775807ns burst 0 leaky_queue",
	"9223372036854775807/1ns burst 9223372036854775806 leaky_queue",
	"4/s burst 10 token_bucket_interval", "9223372036854775807/4611686018427387903ns token_bucket_interval",
	"1/1ns burst 9223372036854775806 token_bucket_interval",
	"3/s fixed_window", "9223372036854775807/4611686018427387903ns fixed_window count_denied", "1/1ns fixed_window",
	"9223372036854775807/4611686018427387903ns fixed_window from first count_denied", "1/1ns fixed_window from first",
	"3/day in UTC", "9223372036854775807/month in Europe/Paris count_denied", "3/day in Pacific/Kiritimati", "3/month in Etc/GMT+12",
	"3/s sliding_log", "9223372036854775807/4611686018427387903ns sliding_log count_denied", "1/1ns sliding_log",
	"3/s sliding_counter", "9223372036854775807/4611686018427387903ns sliding_counter", "9223372036854775807/4611686018427387903ns sliding_counter relaxed count_denied", "1/1ns sliding_counter",
	"3/s sliding_buckets", "9223372036854775807/4611686018427387903ns sliding_buckets parts 3600 count_denied", "1/1ns sliding_buckets", "2147483647/7ns sliding_buckets parts 5 count_denied", "2147483648/7ns sliding_buckets parts 5",
}

var (
	extremeTimes = []int64{math.MinInt64, -1, 0, 1, 1e9, math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64}
	extremeCosts = []int64{math.MinInt64, -1, 0, 1, 2, math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64}
)

// within fails the test if f does not end, such as by a loop up to the end of time.
func within(t testing.TB, d time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(d):
		t.Fatalf("no end after %v", d)
	}
}

// No int64 makes any method wrap, panic or loop, in any order.
func TestMeterExtremes(t *testing.T) {
	for _, limit := range greatest {
		t.Run(strings.ReplaceAll(limit, "/", " per "), func(t *testing.T) {
			m := meterOf(t, limit)
			within(t, time.Minute, func() {
				for _, now := range extremeTimes {
					for _, cost := range extremeCosts {
						everyMethod(t, m, now, cost)
					}
				}
			})
		})
	}
}

// everyMethod takes cost at now, and then calls every method at every time.
func everyMethod(t testing.TB, m *meter.Meter, now, cost int64) {
	first := keyOf(m)
	d := first.take(now, cost)
	ranges(t, m, d, now, cost)
	if want := cost <= m.Capacity(); d.Allowed != want {
		t.Errorf("at %d an unseen key is allowed %d: %v, want %v", now, cost, d.Allowed, want)
	}
	for _, then := range extremeTimes {
		for i, c := range extremeCosts {
			k := first.clone()
			ranges(t, m, k.take(then, c), then, c)
			k.reserve(then, cost)
			if delay := m.Delay(k.s, now, c); delay < 0 {
				t.Errorf("delay %v", delay)
			}
			if c <= 0 && m.Wait(k.s, then, c) != 0 {
				t.Errorf("a wait for a cost of %d", c)
			}
			k.giveBack(then, c)
			m.Refund(k.s, extremeTimes[i], c)
			ranges(t, m, k.ask(then, c), then, c)
			m.Idle(k.s, then)
			m.Allow(k.s, now, min(c, 1))
			if !m.Check(k.s) {
				t.Fatalf("take %d at %d, take %d at %d: unsound %v", cost, now, c, then, k.s)
			}
			to := make([]uint64, max(len(k.s), m.Words()))
			m.Move(to, k.s)
			m.Refund(to, then, math.MaxInt64)
		}
	}
}

// ranges checks what every decision must be, whatever was asked.
func ranges(t testing.TB, m *meter.Meter, d answer, now, cost int64) {
	t.Helper()
	capacity := m.Capacity()
	bad := ""
	switch {
	case d.Remaining < 0 || d.Remaining > capacity:
		bad = "remaining"
	case d.ResetAfter < 0:
		bad = "reset after"
	case d.Delay < 0 || d.Delay > 0 && m.Algorithm() != meter.LeakyQueue:
		bad = "delay"
	case d.Allowed != (d.RetryAfter == 0), d.RetryAfter < meter.Never, (cost > capacity) != (d.RetryAfter == meter.Never):
		bad = "retry after"
	}
	if bad != "" {
		t.Errorf("%v: %d units at %d: %s of %+v", m.Spec(), cost, now, bad, d)
	}
}

// A clock that jumped a thousand years of windows ahead and came back locks no key
// out for longer than the algorithm allows, however often it is asked, and the waits
// that it returns are true.
func TestMeterClockFault(t *testing.T) {
	const s = int64(time.Second)
	for _, c := range []struct {
		limit  string
		lasts  int64 // the longest until one unit passes
		atOnce bool  // the state is as far ahead as the fault, so it waits so long
	}{
		{"10/s", s + s/10, true},        // two drains less all but one unit of the second
		{"7/1m", 68571428572, true},     // the same where T is no whole number
		{"5/s leaky_queue", 0, false},   // see below: 6·T + one more drain
		{"10/s fixed_window", 0, false}, // to the end of the next window
		{"10/s fixed_window count_denied", 0, false},
		{"10/s fixed_window from first", 2 * s, true},
		{"10/day in UTC", 0, false},
		{"10/s token_bucket_interval", 0, false},
		{"10/s sliding_log", 0, false},
		{"10/s sliding_counter", 0, false},
		{"10/s sliding_buckets parts 5", 0, false},
	} {
		m := meterOf(t, c.limit)
		period := int64(m.Spec().NominalPeriod())
		most := c.lasts
		if most == 0 {
			most = 2*period + period/5
		}
		k := keyOf(m)
		start := 100*period + period/2
		k.take(start+1000*period, m.Capacity())
		d := k.ask(start, 1)
		if d.Allowed || int64(d.RetryAfter) > most || c.atOnce && int64(d.RetryAfter) != most {
			t.Errorf("%s: after the jump %+v, want a wait of at most %v", c.limit, d, time.Duration(most))
			continue
		}
		wait, passed := int64(d.RetryAfter), int64(-1)
		for step := int64(0); step <= 4*period; step += period / 20 {
			if k.admits(start+step, 1) {
				passed = step
				break
			}
			if !m.CountsDenied() {
				k.take(start+step, 1)
			}
		}
		if passed < 0 || passed < wait || passed > wait+period/20 {
			t.Errorf("%s: told to wait %v, passes after %v (-1ns: never)", c.limit, time.Duration(wait), time.Duration(passed))
		}
	}
}

// A log with too little room merges its newest entries: it then denies more
// than the exact one, never less.
func TestMeterLogMerges(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for round := range 300 {
		m, err := stint.New(1+rnd.Int64N(40), 1000).WithAlgorithm(meter.SlidingLog).Meter()
		if err != nil {
			t.Fatal(err)
		}
		exact, tight := keyOf(m), &key{Meter: m, s: make([]uint64, m.Words()+rnd.IntN(8))}
		now, denied := int64(0), 0
		for range 200 {
			now += rnd.Int64N(80) * rnd.Int64N(2)
			cost := 1 + rnd.Int64N(3)
			d, ok := tight.Take(tight.s, now, cost)
			if ok && !exact.admits(now, cost) {
				t.Fatalf("round %d, %v: with %d words %d passes at %d, exactly it does not", round, m.Spec(), len(tight.s), cost, now)
			}
			if ok {
				exact.charge(now, cost)
			} else if exact.admits(now, cost) {
				denied++
			}
			left, reset := exact.level(now)
			if d.Remaining > left || d.ResetAfter < reset || !m.Check(tight.s) {
				t.Fatalf("round %d: %d left and reset %v, exactly %d and %v; sound %v", round, d.Remaining, d.ResetAfter, left, reset, m.Check(tight.s))
			}
		}
		if denied > 150 {
			t.Errorf("round %d: a merged log denies all but everything", round)
		}
	}
}

// Parts cut at whole nanoseconds or between them decide as the definition says.
func TestMeterParts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	for round := range 400 {
		period, parts, count := 1+rnd.Int64N(50), 1+rnd.Int64N(12), 1+rnd.Int64N(9)
		m, err := stint.New(count, time.Duration(period)).WithAlgorithm(meter.SlidingSubWindows).WithParts(parts).Meter()
		if err != nil {
			t.Fatal(err)
		}
		k, charges, now := keyOf(m), map[int64]int64{}, rnd.Int64N(100)
		for range 100 {
			now += rnd.Int64N(1 + period/2)
			cost := 1 + rnd.Int64N(3)
			used := int64(0)
			for i, c := range charges { // by the part that they are in: (i+1)·W/n > t − W
				if (i+1)*period > (now-period)*parts {
					used += c
				}
			}
			if d := k.take(now, cost); d.Allowed != (used+cost <= count) {
				t.Fatalf("round %d, %v: %d at %d with %d counting: %+v", round, m.Spec(), cost, now, used, d)
			} else if d.Allowed {
				charges[now*parts/period] += cost
			}
		}
	}
}

// Windows of calendars: from and until are the first moments of a window and
// of the one after it, worked out from the rules of the zones.
func TestMeterCalendar(t *testing.T) {
	for _, c := range []struct{ about, limit, from, until string }{
		{"a day", "3/day in UTC", "2026-02-28T00:00:00Z", "2026-03-01T00:00:00Z"},
		{"the epoch's", "3/day in UTC", "1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"},
		{"of 23 h", "3/day in Europe/Paris", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"of 25 h", "3/day in Europe/Paris", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"2044, a year that ZoneBounds gets wrong", "3/day in Europe/Paris", "2044-12-30T23:00:00Z", "2044-12-31T23:00:00Z"},
		{"before a midnight that is skipped", "3/day in America/Sao_Paulo", "2017-10-14T03:00:00Z", "2017-10-15T03:00:00Z"},
		{"midnight is skipped: begins at 01:00", "3/day in America/Sao_Paulo", "2017-10-15T03:00:00Z", "2017-10-16T02:00:00Z"},
		{"midnight comes twice: begins at the second", "3/day in America/Sao_Paulo", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		{"before a day that is skipped", "3/day in Pacific/Apia", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"after a day that is skipped", "3/day in Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"before the date goes back", "3/day in America/St_Johns", "2006-10-28T02:30:00Z", "2006-10-29T02:30:00Z"},
		{"the date goes back at 00:01: begins once", "3/day in America/St_Johns", "2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z"},
		{"half an hour off", "3/day in Asia/Kolkata", "2026-05-04T18:30:00Z", "2026-05-05T18:30:00Z"},
		{"furthest ahead", "3/day in Pacific/Kiritimati", "2026-05-04T10:00:00Z", "2026-05-05T10:00:00Z"},
		{"furthest behind", "3/day in Etc/GMT+12", "2026-05-05T12:00:00Z", "2026-05-06T12:00:00Z"},
		{"February of a leap year", "3/month in UTC", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"February of another", "3/month in UTC", "2023-02-01T00:00:00Z", "2023-03-01T00:00:00Z"},
		{"February 2000", "3/month in UTC", "2000-02-01T00:00:00Z", "2000-03-01T00:00:00Z"},
		{"February 2100", "3/month in UTC", "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z"},
		{"over the year's end", "3/month in UTC", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"a month into summer", "3/month in Europe/Paris", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"},
		{"a month short of a day", "3/month in Pacific/Apia", "2011-12-01T10:00:00Z", "2011-12-31T10:00:00Z"},
	} {
		t.Run(c.about, func(t *testing.T) {
			m, from, until := meterOf(t, c.limit), unix(t, c.from), unix(t, c.until)
			k := keyOf(m)
			k.take(from-1, 3)
			if from > 0 && k.admits(from-1, 1) {
				t.Error("no room is left in the window before, and one more passes")
			}
			k = keyOf(m)
			if d := k.take(from, 2); !d.Allowed || int64(d.ResetAfter) != until-from {
				t.Errorf("at the beginning %+v, want a reset after %v", d, time.Duration(until-from))
			}
			for _, at := range []int64{from + 1, from + 60e9, from + 90e9, (from + until) / 2, until - 3600e9, until - 1} {
				if d := k.take(at, 2); d.Allowed || d.Remaining != 1 || int64(d.RetryAfter) != until-at {
					t.Errorf("%v in: %+v, want a wait of %v", time.Duration(at-from), d, time.Duration(until-at))
				}
			}
			if d := k.take(until, 3); !d.Allowed {
				t.Errorf("at the end %+v", d)
			}
			k = keyOf(m)
			k.take(max(from-1, 0), 3)
			if from > 0 && !k.admits(from, 3) {
				t.Error("what was taken the moment before still counts")
			}
		})
	}
}

func unix(t testing.TB, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixNano()
}

// Other numbers: what was used at 100 s under the old limit, and what is left and how
// long to a reset under the new one at 100.5 s, whether its numbers come into force or
// not; worked out by hand.
func TestMeterAdopt(t *testing.T) {
	const s = int64(time.Second)
	for _, c := range []struct {
		old   string
		used  int64
		next  string
		fits  bool
		left  int64
		reset time.Duration
	}{
		// Buckets: five units are in use after half a second, and stay so.
		{"10/s", 10, "20/s", true, 15, 250 * time.Millisecond},
		{"10/s", 10, "5/s", true, 0, time.Second},
		{"10/s", 10, "10/s burst 4", false, 0, 500 * time.Millisecond},
		{"10/s", 10, "4/s", false, 0, 500 * time.Millisecond},
		{"10/s", 10, "10/s burst 100", true, 95, 500 * time.Millisecond},
		{"10/s", 5, "20/s", true, 20, 0},
		{"10/s", 0, "20/s", true, 20, 0},
		{"7/1m", 1, "3/1m", true, 2, 18833333334},
		{"3/1m", 1, "7/1m", true, 6, 8357142858},
		{"7/1m", 7, "1/1m", false, 0, 59500 * time.Millisecond},
		{"9223372036854775807/s burst 9223372036854775806", 9223372036854775806, "10/s", false, 0, 500 * time.Millisecond},
		{"10/s", 10, "9223372036854775807/s burst 9223372036854775806", true, 9223372036854775801, 1},
		{"10/s leaky_queue", 11, "10/s burst 0 leaky_queue", false, 0, 600 * time.Millisecond},
		{"10/s leaky_queue", 11, "20/s leaky_queue", true, 15, 300 * time.Millisecond},
		// Lumps: the tokens that are missing.
		{"10/s token_bucket_interval", 4, "20/s token_bucket_interval", true, 16, 500 * time.Millisecond},
		{"4/s burst 10 token_bucket_interval", 10, "2/s burst 12 token_bucket_interval", true, 2, 4500 * time.Millisecond},
		{"4/s burst 10 token_bucket_interval", 10, "20/s burst 9 token_bucket_interval", false, 0, 2500 * time.Millisecond},
		{"10/s token_bucket_interval", 0, "5/s token_bucket_interval", true, 5, 0},
		// Algorithms that count in windows keep the same state.
		{"10/s fixed_window", 4, "20/s fixed_window", true, 16, 500 * time.Millisecond},
		{"10/s fixed_window", 4, "3/s fixed_window", true, 0, 500 * time.Millisecond},
		{"10/s fixed_window from first", 4, "3/s fixed_window from first", true, 0, 500 * time.Millisecond},
		{"10/s sliding_log", 4, "3/s sliding_log", true, 0, 500 * time.Millisecond},
		{"10/s sliding_counter", 4, "3/s sliding_counter relaxed", true, 0, 1500 * time.Millisecond},
		{"10/s sliding_buckets parts 5", 4, "20/s sliding_buckets parts 5", true, 16, 700 * time.Millisecond},
	} {
		old, next := keyOf(meterOf(t, c.old)), meterOf(t, c.next)
		old.s = append(old.s, 0) // words for either
		old.charge(100*s, c.used)
		seen, fits := meter.Answer{Remaining: c.left}, true
		if next.Drains() {
			seen, _ = next.Through(old.s, old.Meter, 100*s+s/2, 0)
			fits = next.Adopt(old.s, old.Meter, 100*s+s/2)
		}
		if seen.Remaining != c.left || fits != c.fits {
			t.Errorf("%d of %s through %s: %d left, fits %v; want %d and %v", c.used, c.old, c.next, seen.Remaining, fits, c.left, c.fits)
		}
		after := answer{Answer: seen}
		if fits {
			after.Remaining, after.ResetAfter = (&key{Meter: next, s: old.s}).level(100*s + s/2)
		}
		if after.Remaining != c.left || after.ResetAfter != c.reset {
			t.Errorf("%d of %s as %s: %d left, reset %v; want %d and %v", c.used, c.old, c.next, after.Remaining, after.ResetAfter, c.left, c.reset)
		}
	}
}

// A state that cannot be adopted, since more is in use than the capacity: requests pass once
// enough has drained at the old rate.
func TestMeterThrough(t *testing.T) {
	for _, c := range []struct {
		old, next string
		cost      int64
		ok        bool
		retry     time.Duration
	}{
		{"100/1m", "10/1m", 1, false, 54600 * time.Millisecond},
		{"100/1m", "10/1m", 10, false, time.Minute},
		{"100/1m", "10/1m", 11, false, meter.Never},
		{"100/1m", "10/1m", 0, true, 0},
		{"100/1m", "101/1m", 1, true, 0},
		{"100/1m token_bucket_interval", "10/1m token_bucket_interval", 1, false, time.Minute},
		{"50/1m burst 100 token_bucket_interval", "10/1m token_bucket_interval", 1, false, 2 * time.Minute},
		{"7/1m leaky_queue", "1/1m leaky_queue", 2, false, 68571428572},
	} {
		old, next := keyOf(meterOf(t, c.old)), meterOf(t, c.next)
		old.s = append(old.s, 0)
		old.charge(0, old.Capacity())
		before := slices.Clone(old.s)
		d, ok := next.Through(old.s, old.Meter, 0, c.cost)
		if ok != c.ok || d.RetryAfter != c.retry {
			t.Errorf("%d of %s through %s: %v, wait %v; want %v, %v", c.cost, c.old, c.next, ok, d.RetryAfter, c.ok, c.retry)
		}
		if !slices.Equal(old.s, before) {
			t.Errorf("%s through %s writes", c.old, c.next)
		}
		if wait := int64(c.retry); wait > 0 {
			_, early := next.Through(old.s, old.Meter, wait-1, c.cost)
			if _, ok := next.Through(old.s, old.Meter, wait, c.cost); early || !ok {
				t.Errorf("%d of %s through %s passes %v before its time, %v at it", c.cost, c.old, c.next, early, ok)
			}
		}
	}
}

// Debt is not carried over a change beyond one drain, and a state that a clock
// fault left far ahead is pulled back by one: the snapshot of a machine whose
// clock was wrong locks no key out for longer.
func TestMeterAdoptClockFault(t *testing.T) {
	for _, limit := range []string{
		"10/s", "10/s leaky_queue", "10/s token_bucket_interval", "10/s fixed_window", "10/s fixed_window from first", "10/day in UTC",
		"10/s sliding_log", "10/s sliding_counter", "10/s sliding_buckets parts 5",
	} {
		m := meterOf(t, limit)
		period := int64(m.Spec().NominalPeriod())
		k, now := keyOf(m), 100*period
		k.take(now+1000*period, m.Capacity())
		to := &key{Meter: m, s: make([]uint64, len(k.s))}
		m.Move(to.s, k.s)
		for step := int64(0); ; step += period / 10 {
			if d := to.take(now+step, 1); d.Allowed {
				break
			}
			if step > 3*period {
				t.Errorf("%s: locked out after %v", limit, time.Duration(step))
				break
			}
		}
	}
}

// fixedKinds has a limit for every algorithm and every form of state of a fixed size.
var fixedKinds = []string{
	"10/s", "7/1m", "9223372036854775807/s burst 9223372036854775806", "5/s leaky_queue", "7/1m leaky_queue", "7/1m debt 50",
	"4/s burst 9 token_bucket_interval", "10/s fixed_window", "10/s fixed_window count_denied", "10/day in Europe/Paris",
	"10/s fixed_window from first",
	"10/s sliding_counter", "10/s sliding_counter relaxed", "10/s sliding_buckets", "10/10ns sliding_buckets parts 3",
	"3000000000/s sliding_buckets parts 7",
}

// Giving a charge back never leaves more than if it had not been made,
// whatever was charged in between.
func TestMeterGiveBackNeverMints(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	for _, limit := range append([]string{"10/s sliding_log", "10/s sliding_log count_denied"}, fixedKinds...) {
		m := meterOf(t, limit)
		gap := int64(m.Spec().NominalPeriod()) / min(m.Capacity(), 10)
		stays := int64(0)
		if m.Spec().FromFirst {
			stays = 1 // the window that the charge began
		}
		for round := range 2000 {
			with, without, now := keyOf(m), keyOf(m), rnd.Int64N(1e9)
			some := func() int64 { return 1 + rnd.Int64N(min(m.Capacity(), 6)) }
			others := func() {
				for range rnd.IntN(4) {
					now += rnd.Int64N(1 + gap*3)
					if c := some(); with.admits(now, c) {
						with.charge(now, c)
						without.charge(now, c)
					}
				}
			}
			others()
			c := some() + stays
			if !with.admits(now, c) {
				continue
			}
			with.reserve(now, c)
			without.charge(now, stays)
			others()
			now += rnd.Int64N(1 + gap*3)
			with.giveBack(now, 1+rnd.Int64N(c-stays))
			others()
			for range 3 {
				a, _ := with.level(now)
				if b, _ := without.level(now); a > b {
					t.Fatalf("%s, round %d: %d remain after giving back, %d had it never been charged", limit, round, a, b)
				}
				now += rnd.Int64N(1 + gap*3)
			}
		}
	}
}

// Giving back and refunding never leave more than the limit.
func TestMeterRefund(t *testing.T) {
	for _, limit := range append([]string{"10/s sliding_log"}, greatest...) {
		m := meterOf(t, limit)
		capacity := m.Capacity()
		for _, amount := range []int64{math.MinInt64, -1, 0, 1, capacity, math.MaxInt64} {
			k := keyOf(m)
			now := int64(5e9)
			k.charge(now, capacity)
			m.Refund(k.s, now, amount)
			want := min(max(amount, 0), capacity)
			if left, _ := k.level(now); left != want {
				t.Errorf("%s: %d left after a refund of %d, want %d", limit, left, amount, want)
			}
		}
	}
}

// Check takes what the methods made and refuses what they cannot work on.
func TestMeterCheck(t *testing.T) {
	const flag = 1 << 63
	long := func(head, used uint64) uint64 { return head<<32 | used }
	for _, c := range []struct {
		name, limit string
		state       []uint64
		want        bool
	}{
		{"nothing", "10/s", nil, false},
		{"one word", "10/s", []uint64{math.MaxUint64}, true},
		{"one word where two are needed", "7/1m", []uint64{1}, false},
		{"two words", "7/1m", []uint64{math.MaxUint64, math.MaxUint64}, true},
		{"a window of one word", "10/s fixed_window", []uint64{1}, false},
		{"a counter of two words", "10/s sliding_counter", []uint64{1, 1}, false},
		{"an empty log", "3/s sliding_log", []uint64{0, 0, 0, 0}, true},
		{"a log without room", "3/s sliding_log", []uint64{0, 0, 0}, false},
		{"a log of no words", "3/s sliding_log", nil, false},
		{"a log", "3/s sliding_log", []uint64{long(0, 2), 2, 5, 5}, true},
		{"a log with units", "3/s sliding_log", []uint64{long(0, 2), 3, 5, 3 | flag}, true},
		{"a log over its end", "3/s sliding_log", []uint64{long(1, 2), 3, 3 | flag, 5}, true},
		{"a log that begins outside", "3/s sliding_log", []uint64{long(2, 0), 0, 0, 0}, false},
		{"a log longer than it is", "3/s sliding_log", []uint64{long(0, 3), 3, 1, 2}, false},
		{"a log of the greatest length", "3/s sliding_log", []uint64{math.MaxUint64, 0, 1, 2}, false},
		{"a log that does not add up", "3/s sliding_log", []uint64{long(0, 2), 3, 1, 2}, false},
		{"a log out of order", "3/s sliding_log", []uint64{long(0, 2), 2, 6, 5}, false},
		{"a log that begins with units", "3/s sliding_log", []uint64{long(0, 1), 1, 1 | flag, 0}, false},
		{"a log of no units", "3/s sliding_log", []uint64{long(0, 2), 0, 5, flag}, false},
		{"a log of more than its limit, for what is reserved", "3/s sliding_log", []uint64{long(0, 2), 4, 5, 4 | flag}, true},
		{"a log whose sum is wrong when empty", "3/s sliding_log", []uint64{0, 1, 0, 0}, false},
		{"parts", "9/3s sliding_buckets parts 3", []uint64{7, 4, 1 | 3<<32, 0}, true},
		{"parts of too few words", "9/3s sliding_buckets parts 3", []uint64{7, 4, 1}, false},
		{"parts that do not add up", "9/3s sliding_buckets parts 3", []uint64{7, 5, 1 | 3<<32, 0}, false},
		{"parts before the epoch", "9/3s sliding_buckets parts 3", []uint64{1, 4, 1 << 32, 3}, false},
		{"parts after all time", "9/3s sliding_buckets parts 3", []uint64{flag, 1, 1, 0}, false},
		{"large parts", "3000000000/3s sliding_buckets parts 3", []uint64{7, math.MaxUint64, math.MaxUint64, 1, 1, 0}, true},
	} {
		if got := meterOf(t, c.limit).Check(c.state); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Words that Check lets through never panic, and decide within range.
func TestMeterArbitraryState(t *testing.T) {
	rnd := rand.New(rand.NewPCG(13, 14))
	for _, limit := range greatest {
		m := meterOf(t, limit)
		within(t, time.Minute, func() {
			for range 300 {
				k := keyOf(m)
				for i := range k.s {
					k.s[i] = rnd.Uint64() >> rnd.IntN(64) << rnd.IntN(64)
				}
				if !m.Check(k.s) {
					continue
				}
				now := rnd.Int64() >> rnd.IntN(63)
				cost := rnd.Int64() >> rnd.IntN(63)
				ranges(t, m, k.take(now, cost), now, cost)
				k.reserve(now, cost)
				k.giveBack(now, cost)
				ranges(t, m, k.take(now, 1), now, 1)
				m.Idle(k.s, now)
				m.Refund(k.s, now, cost)
				if !m.Check(k.s) {
					t.Errorf("%s: unsound %v", limit, k.s)
				}
			}
		})
	}
}

func TestMeterWords(t *testing.T) {
	for limit, want := range map[string]int{
		"10/s": 1, "7/1m": 2, "5/s leaky_queue": 1, "10/s token_bucket_interval": 2, "10/s fixed_window": 2, "10/s fixed_window from first": 2, "10/day in UTC": 2,
		"10/s sliding_counter": 3, "10/s sliding_log": 4, "10/s sliding_buckets": 33, "3000000000/s sliding_buckets": 63,
		"10/s sliding_buckets parts 3600": 1803, "10/7ns sliding_buckets parts 3600": 6, "1/4611686018427387903ns": 2,
	} {
		if got := meterOf(t, limit).Words(); got != want {
			t.Errorf("%s: %d words, want %d", limit, got, want)
		}
	}
}

// TakeWord is Allow on a word.
func TestMeterTakeWord(t *testing.T) {
	rnd := rand.New(rand.NewPCG(15, 16))
	m := meterOf(t, "10/s burst 4")
	k, word, now := keyOf(m), uint64(0), int64(0)
	for i := range 10_000 {
		now += rnd.Int64N(3e8) - 5e7
		cost := rnd.Int64N(7) - 1
		next, ok := m.TakeWord(word, now, cost)
		d := k.take(now, cost)
		if ok != d.Allowed || next != k.s[0] {
			t.Fatalf("take %d: %v and %d, want %v and %d", i, ok, next, d.Allowed, k.s[0])
		}
		word = next
	}
}

func TestMeterAllocatesNothing(t *testing.T) {
	for _, limit := range fixedKinds {
		m := meterOf(t, limit)
		s, now := make([]uint64, m.Words()), int64(1e18)
		var open meter.Reservations
		for name, f := range map[string]func(){
			"Allow":  func() { now += 7e6; m.Allow(s, now, 1) },
			"Take":   func() { now += 7e6; m.Take(s, now, 2) },
			"denied": func() { m.Take(s, now, m.Capacity()) },
			"never":  func() { m.Take(s, now, math.MaxInt64) },
			"Settle": func() { m.Settle(&open, m.Reserve(&open, s, now, 1), s, now, 1, 0) },
			"Refund": func() { m.Refund(s, now, 1) },
			"Idle":   func() { m.Idle(s, now) },
		} {
			if n := testing.AllocsPerRun(100, f); n != 0 {
				t.Errorf("%s: %s allocates %v times", limit, name, n)
			}
		}
	}
	// A log allocates nothing either, as long as it has room.
	m := meterOf(t, "10/s sliding_log")
	s, now := make([]uint64, 64), int64(1e18)
	if n := testing.AllocsPerRun(1000, func() { now += 7e6; m.Take(s, now, 1) }); n != 0 {
		t.Errorf("a log with room allocates %v times", n)
	}
}

func TestGCD(t *testing.T) {
	for _, c := range [][3]uint64{{1, 1, 1}, {12, 18, 6}, {7, 60e9, 1}, {1e9, 1e9, 1e9}, {math.MaxInt64, 7, 7}, {math.MaxInt64, math.MaxInt64 - 1, 1}} {
		if got := meter.GCD(c[0], c[1]); got != c[2] {
			t.Errorf("gcd of %d and %d: %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
