package trial_test

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/leaktest"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/planner/trial"
	"github.com/stint-dev/stint/simulate"
)

func TestMain(m *testing.M) { leaktest.Main(m, goleak.Find) }

func TestParsePhases(t *testing.T) {
	for _, test := range []struct {
		text     string
		requests []int64
		lengths  []time.Duration
	}{
		{"10@1/s", []int64{10}, []time.Duration{10 * time.Second}},
		{" 1_000@100/s\t20@once +1m30s", []int64{1000, 20, 0}, []time.Duration{10 * time.Second, 0, 90 * time.Second}},
		{"3@7/m", []int64{3}, []time.Duration{25714285715}},
		{"1@1/250ms", []int64{1}, []time.Duration{250 * time.Millisecond}},
	} {
		phases, err := trial.ParsePhases(test.text)
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		var requests []int64
		var lengths []time.Duration
		for _, p := range phases {
			requests = append(requests, p.Requests)
			lengths = append(lengths, time.Duration(p.Length()))
		}
		if !slices.Equal(requests, test.requests) || !slices.Equal(lengths, test.lengths) {
			t.Errorf("%q: %v requests in %v, want %v in %v", test.text, requests, lengths, test.requests, test.lengths)
		}
	}
	for _, text := range []string{
		"", "+1s", "10", "@1/s", "0@1/s", "-1@1/s", "1.5@1/s", "10@", "10@1", "10@every", "10@1/s/s", "10@0/s",
		"10@1/month", "+0s", "+-1s", "+x", "10@once@once", "1000001@1/s", "600000@1/s 600000@1/s",
		"9@1/300000h", "+40000h +300000h +300000h 1@once", "10@9223372036854775808/s", "_@1/s",
	} {
		if phases, err := trial.ParsePhases(text); err == nil {
			t.Errorf("%q is taken as %v", text, phases)
		}
	}
}

// Slots are those of rational arithmetic, rounded up.
func TestSlotsAreExact(t *testing.T) {
	phases, err := trial.ParsePhases("1000@7/13s 1000@999999937/s 1@9223372036854775807/s")
	if err != nil {
		t.Fatal(err)
	}
	rates := [][2]int64{{7, 13e9}, {999999937, 1e9}, {math.MaxInt64, 1e9}}
	for n, p := range phases {
		for i := range p.Requests + 1 {
			want := new(big.Int).Mul(big.NewInt(i), big.NewInt(rates[n][1]))
			want.Add(want, big.NewInt(rates[n][0]-1)).Div(want, big.NewInt(rates[n][0]))
			if got := p.Slot(i); got != want.Int64() {
				t.Fatalf("phase %d, request %d: slot %d, want %v", n, i, got, want)
			}
		}
	}
}

// To skip the tries that must fail gives what trying each would.
func TestDriveSkipsTries(t *testing.T) {
	for _, kind := range []string{"", " sliding_log", " sliding_counter", " fixed_window", " leaky_queue"} {
		limit := made.Limit(t, "7/2s"+kind)
		phases, err := trial.ParsePhases("9@once 40@5/s +1s 20@once")
		if err != nil {
			t.Fatal(err)
		}
		var fast, slow bytes.Buffer
		if err := trial.Drive(&fast, []stint.Limit{limit}, phases, 3*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		// A layer that counts what it denies, but never does, forbids to skip.
		layers := []stint.Limit{limit, stint.New(1e6, time.Hour).WithAlgorithm(meter.FixedWindow).WithCountDenied()}
		if err := trial.Drive(&slow, layers, phases, 3*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if fast.String() != slow.String() {
			t.Errorf("%v:\n%s, but trying each time\n%s", limit, &fast, &slow)
		}
	}
}

func compare(t *testing.T, arrivals []simulate.Request, stretch time.Duration, limits ...string) *trial.Comparison {
	t.Helper()
	var candidates [][]stint.Limit
	for _, text := range limits {
		l := made.Limit(t, text)
		candidates = append(candidates, []stint.Limit{l})
	}
	c, err := trial.Compare(candidates, arrivals, 0, stretch)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Twice the count passes around the edge of a fixed window, and shows.
func TestMost(t *testing.T) {
	var arrivals []simulate.Request
	for _, at := range []int64{9e8, 1e9} {
		for range 10 {
			arrivals = append(arrivals, simulate.Request{At: at, Key: "a", Cost: 1}, simulate.Request{At: at, Key: "b", Cost: 1})
		}
	}
	for _, test := range []struct {
		limit string
		most  int64
	}{
		{"5/s fixed_window", 10},
		{"5/s sliding_log", 5},
		{"5/s", 5},
		{"5/s leaky_queue", 5},
		{"100/s", 20},
	} {
		c := compare(t, arrivals, time.Second, test.limit)
		if got := c.Rows[0].Most; got != test.most {
			t.Errorf("%s: at most %d of a key in a second, want %d", test.limit, got, test.most)
		}
	}
	big := []simulate.Request{{Cost: math.MaxInt64}, {At: 1, Cost: math.MaxInt64}}
	if got := compare(t, big, 0, "9223372036854775807/1ns").Rows[0].Most; got != math.MaxInt64 {
		t.Errorf("the greatest costs add up to %d", got)
	}
	half := []simulate.Request{{Cost: 1 << 62}, {At: 1, Cost: 1 << 62}, {At: 1, Cost: 5}}
	if got := compare(t, half, 0, "9223372036854775807/1ns").Rows[0].Most; got != 1<<62+5 {
		t.Errorf("at most %d of the second, want %d", got, int64(1<<62+5))
	}
}

// Whatever arrives when: every arrival is in one column, and the text fits.
func TestTextFits(t *testing.T) {
	for _, at := range [][]int64{
		{0}, {0, 1}, {0, 67}, {0, 68, 69}, {5, 1e9}, {1e18, 1e18 + 1}, {1e18 + 7, 1e18 + 3600e9},
		{0, math.MaxInt64 / 2}, {math.MaxInt64 / 2}, {0, 86400e9 * 67}, {0, 86400e9 * 400},
	} {
		var arrivals []simulate.Request
		for _, at := range at {
			for range 7 {
				arrivals = append(arrivals, simulate.Request{At: at, Cost: 1})
			}
		}
		for _, limits := range [][]string{
			{"5/s burst 2 leaky_queue"},
			{"5/s", "1/h burst 3 leaky_queue", "100000/m sliding_buckets parts 3600 count_denied", "1/100000h burst 9 leaky_queue"},
		} {
			c := compare(t, arrivals, 0, limits...)
			for _, r := range c.Rows {
				n := int64(0)
				for i := range r.Passes {
					n += r.Passes[i] + r.Denials[i]
				}
				if n != int64(len(arrivals)) {
					t.Errorf("%v: %d of %d arrivals are in the columns", at, n, len(arrivals))
				}
			}
			var b strings.Builder
			if err := c.Text(&b); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
					t.Errorf("%v: a line of %d columns: %s", at, n, line)
				}
			}
		}
	}
}

func TestReadArrivals(t *testing.T) {
	arrivals, err := trial.ReadArrivals(strings.NewReader(
		`{"t":"1s","key":"a"}` + "\r\n\n" + `{"t":"500ms","key":"b","cost":3,"op":"take"}`))
	want := []simulate.Request{{At: 1e9, Key: "a", Cost: 1}, {At: 1e9, Key: "b", Cost: 3}}
	if err != nil || !slices.Equal(arrivals, want) {
		t.Errorf("%v (%v), want %v", arrivals, err, want)
	}
	for _, line := range []string{
		`{`, `{"t":"1s","key":"a","op":"peek"}`, `{"t":"2200-01-01T00:00:00Z","key":"a"}`,
		`{"t":"1s","limits":[{"limit":"5/s","key":"a"}]}`, strings.Repeat("x", 2<<20),
	} {
		_, err := trial.ReadArrivals(strings.NewReader(`{"t":"0s","key":"a"}` + "\n" + line))
		if bad, ok := errors.AsType[*simulate.LineError](err); !ok || bad.Line != 2 {
			t.Errorf("%.80s: %v, want an error of line 2", line, err)
		}
	}
}

// TestArrivalsRoom makes room for the requests of a phase once: what a server throws
// away while it simulates, its collector takes from requests.
func TestArrivalsRoom(t *testing.T) {
	phases, err := trial.ParsePhases("100000@5000/s")
	if err != nil {
		t.Fatal(err)
	}
	// With the race detector, slices.Grow allocates twice; growing by append takes 28.
	if n := testing.AllocsPerRun(10, func() { trial.Arrivals(phases) }); n > 2 {
		t.Errorf("%v allocations for one phase", n)
	}
	phases, err = trial.ParsePhases("10@once +1s 20@10/s")
	if err != nil {
		t.Fatal(err)
	}
	if arrivals, end := trial.Arrivals(phases); len(arrivals) != 30 || arrivals[10].At != int64(time.Second) || end != int64(3*time.Second) {
		t.Errorf("%d requests until %d: %+v", len(arrivals), end, arrivals)
	}
}
