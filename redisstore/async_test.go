package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestAsyncWorstCase drives N nodes as far above a limit as they can get: each
// knows the sum as it was U below the limit, or further, and then the server stalls. Each
// lets through U and no more; when the server is back, none lets anything
// through: N·U at the most.
func TestAsyncWorstCase(t *testing.T) {
	const n, limit, unsent = 4, 1000, 50
	server := redistest.Start(t)
	stores := nodes(t, server.URL(), n, redisstore.Options{Modes: redisstore.Modes{AsyncUnsent: unsent, AsyncPeriod: time.Hour}})
	for i, text := range []string{"1000/1000h", "1000/1000h sliding_log", "1000/1000h sliding_counter", "1000/1000h sliding_buckets", "1000 per month in UTC"} {
		below := int64(unsent)
		if i%2 == 1 {
			below *= n - 1
		}
		first := bind(t, stores[0], text)
		var admitted atomic.Int64
		admitted.Add(take(t, first, "k", limit-below).Taken)
		limits := make([]stint.Bound, n)
		for i, s := range stores {
			limits[i] = bindIn(t, s, redisstore.Async, text)
			if d := peek(t, limits[i], "k"); d.Remaining != below {
				t.Fatalf("%s: %+v", text, d)
			}
		}
		server.Signal(t, syscall.SIGSTOP)
		var asking sync.WaitGroup
		for _, l := range limits {
			asking.Go(func() {
				for {
					within, cancel := context.WithTimeout(ctx, time.Second) // the last of them has that to no avail
					d, err := l.Decide(within, meter.OpTake, "k", 1)
					cancel()
					if err != nil || !d.Allowed {
						return
					}
					admitted.Add(1)
				}
			})
		}
		asking.Wait()
		server.Signal(t, syscall.SIGCONT)
		for _, l := range limits {
			for range 3 * unsent {
				admitted.Add(take(t, l, "k", 1).Taken)
			}
		}
		switch over := admitted.Load() - limit; {
		case over > n*unsent:
			t.Errorf("%s: %d above the limit, at most %d", text, over, n*unsent)
		case over < n*unsent-below:
			t.Errorf("%s: %d above the limit: the worst case was not reached", text, over)
		}
	}
}

// TestAsyncCountsOnce loses half of the answers to what is sent: each unit is
// counted once all the same.
func TestAsyncCountsOnce(t *testing.T) {
	clock := newVirtual()
	var sent, lost atomic.Int64
	driver := &front{Driver: redisstore.NewDriver(client(t, redistest.Start(t).Addr)), eval: func(_ context.Context, _, args []string, call func([]string) (any, error)) (any, error) {
		reply, err := call(args)
		if args[0] == "n" && err == nil && sent.Add(1)%2 == 0 { // never enough in a row for calls to cease
			lost.Add(1)
			return nil, errors.New("the connection was lost")
		}
		return reply, err
	}}
	s := open(t, "", redisstore.Options{Driver: driver, Now: clock.now, Modes: redisstore.Modes{AsyncUnsent: 100}})
	for _, text := range []string{"1000000/1000h", "1000000/1000h fixed_window"} {
		limit := bindIn(t, s, redisstore.Async, text)
		asked := bind(t, s, text)
		admitted, rnd := int64(0), rand.New(rand.NewPCG(2, 3))
		for range 5000 {
			clock.add(10 * time.Millisecond)
			d, err := limit.Decide(ctx, meter.OpTake, "k", 1+rnd.Int64N(9))
			if err != nil && !errors.Is(err, redisstore.ErrNotExecuted) {
				t.Fatal(err)
			}
			admitted += d.Taken
		}
		for range 100 { // until all is sent
			clock.add(time.Second)
			if s.Sweep(); s.Held() == 0 {
				break
			}
		}
		d := peek(t, asked, "k")
		forgiven := int64(0)
		if text == "1000000/1000h" { // a unit each 3.6 s, of some 150 s
			forgiven = 60
		}
		if used := d.Limit - d.Remaining; used > admitted || used < admitted-forgiven || lost.Load() < 100 {
			t.Errorf("%s: %d counted of %d admitted, with %d answers lost", text, used, admitted, lost.Load())
		}
	}
}

// TestAsyncChanged changes a limit while what was let through under it is lost on its way:
// it is counted all the same, once, behind what was let through since.
func TestAsyncChanged(t *testing.T) {
	clock := newVirtual()
	var loses atomic.Bool
	driver := &front{Driver: redisstore.NewDriver(client(t, redistest.Start(t).Addr)), eval: func(_ context.Context, _, args []string, call func([]string) (any, error)) (any, error) {
		reply, err := call(args)
		if loses.Load() && args[0] == "n" && args[2] == "10" {
			return nil, errors.New("the connection was lost")
		}
		return reply, err
	}}
	s := open(t, "", redisstore.Options{Driver: driver, Now: clock.now, Modes: redisstore.Modes{AsyncUnsent: 100}})
	take(t, under(t, s, redisstore.Async, "1000/1000h fixed_window"), "k", 10)
	loses.Store(true)
	clock.add(time.Second)
	s.Sweep()
	after := under(t, s, redisstore.Async, "2000/1000h fixed_window")
	if d, err := after.Decide(ctx, meter.OpTake, "k", 5); err == nil {
		t.Errorf("%+v: decided without knowing what is in use", d)
	}
	loses.Store(false)
	take(t, after, "k", 5)
	clock.add(time.Second)
	s.Sweep()
	if d := peek(t, under(t, s, redisstore.Strict, "2000/1000h fixed_window"), "k"); d.Remaining != 2000-15 {
		t.Errorf("%+v: 15 were let through", d)
	}
}

// under binds a limit in a mode under one name.
func under(t testing.TB, s *redisstore.Store, m redisstore.Mode, text string) stint.Bound {
	t.Helper()
	return underOneName(t, s.Mode(m), "l", text)
}

// TestAsyncLowered lowers a limit of which a lot is in use, in one process and in one of
// two, whose clients go on asking: once what is in use fits, and nobody reports by the
// numbers before, the new ones are in force. Until then they deny.
func TestAsyncLowered(t *testing.T) {
	server := redistest.Start(t)
	for _, c := range []struct {
		before, after string
		cost          int64         // of the requests under the limit after
		old           time.Duration // how long the process with the old limit goes on; 0: it is the same
		passed        string        // in each of ten seconds
	}{
		{"50/5s", "5/5s", 5, 0, "0 0 0 0 0 0 0 0 0 5"},
		{"500/5s", "5/5s", 1, 0, "0 0 0 0 1 1 1 1 1 1"},
		{"500/5s", "5/5s", 1, 2 * time.Second, "0 0 0 0 0 0 1 1 1 1"},
		{"500/5s token_bucket_interval", "5/5s token_bucket_interval", 1, 0, "0 0 0 0 5 0 0 0 0 5"},
		{"500/5s fixed_window", "5/5s fixed_window", 1, 0, "0 0 0 0 5 0 0 0 0 5"},
		{"500/5s sliding_log", "5/5s sliding_log", 1, 0, "0 0 0 0 0 5 0 0 0 0"},
		{"500/5s sliding_counter", "5/5s sliding_counter", 1, 0, "0 0 0 0 0 0 0 0 0 5"},
	} {
		clock := newVirtual()
		clock.add(time.Second)
		stores := nodes(t, server.URL(), 2, redisstore.Options{Now: clock.now, Modes: redisstore.Modes{AsyncUnsent: c.cost}})
		if c.old == 0 {
			stores[1] = stores[0]
		}
		old, now := under(t, stores[0], redisstore.Async, c.before), stint.Bound(nil)
		for range 500 {
			take(t, old, "k", 1)
		}
		now = under(t, stores[1], redisstore.Async, c.after)
		var passed [10]int64
		for i := range 1000 {
			if time.Duration(i)*10*time.Millisecond < c.old {
				take(t, old, "k", 1)
			}
			passed[i/100] += take(t, now, "k", c.cost).Taken
			if clock.add(10 * time.Millisecond); i%10 == 0 {
				stores[0].Sweep()
				stores[1].Sweep()
			}
		}
		if got := strings.Trim(fmt.Sprint(passed), "[]"); got != c.passed {
			t.Errorf("%s to %s, of a process that goes on for %v: passed %s, want %s", c.before, c.after, c.old, got, c.passed)
		}
	}
}

// TestAsyncRetry has a client wait as long as it is told: then it gets the answer of the server,
// not one by a sum that is out of date. A bucket's wait is exact from the first.
func TestAsyncRetry(t *testing.T) {
	server := redistest.Start(t)
	for _, text := range []string{
		"1000/1s burst 400", "400/300ms fixed_window", "400/300ms fixed_window from first", "400/300ms sliding_log", "400/300ms sliding_counter",
		"400/300ms sliding_buckets parts 7", "100/200ms token_bucket_interval burst 400",
	} {
		clock := newVirtual()
		s := nodes(t, server.URL(), 1, redisstore.Options{Now: clock.now})[0]
		limit, asked := bindIn(t, s, redisstore.Async, text), bind(t, s, text)
		bucket := limit.Limits()[0].Algorithm() == meter.GCRA
		for passed := 0; passed < 1000; {
			clock.add(10 * time.Microsecond)
			d := take(t, limit, "k", 1)
			if d.Allowed {
				passed++
				continue
			}
			if bucket && d.RetryAfter > stint.Wait(time.Millisecond) {
				t.Errorf("%s: told to wait %v", text, d.RetryAfter)
			}
			clock.add(time.Duration(d.RetryAfter))
			got := take(t, limit, "k", 1)
			if got.Allowed {
				passed++
			} else if want := peek(t, asked, "k"); bucket || want.Allowed || got.RetryAfter < want.RetryAfter {
				t.Errorf("%s: told to wait %v, then %+v; the server: %+v", text, d.RetryAfter, got, want)
			}
		}
	}
}

// TestAsyncEnvelope takes at random from several nodes on a virtual clock, and
// compares with N·U above B + d/T: of the largest burst and the fastest rate, where the
// nodes have limits of one identity and other numbers.
func TestAsyncEnvelope(t *testing.T) {
	server := redistest.Start(t)
	const unsent = 20
	for _, texts := range [][3]string{
		{"1000/1s burst 300", "1000/1s burst 300", "1000/1s burst 300"},
		{"2000/1s", "200/1s burst 2000", "200/1s burst 2000"},
		{"1000/1s", "100/1s burst 300", "100/1s burst 300"},
		{"1000/1s burst 300", "10/1s", "10/1s"},
		{"1000/1s debt 1", "1000/1s debt 1", "1000/1s debt 1"},
		{"1000/1s debt 10", "1000/1s debt 50", "500/1s"},
		{"300/1s token_bucket_interval debt 1", "300/1s token_bucket_interval", "100/1s token_bucket_interval burst 300"},
	} {
		t.Run(strings.Join(texts[:], ", "), func(t *testing.T) {
			clock, rnd := newVirtual(), rand.New(rand.NewPCG(5, 5))
			history := envelopeOf(parse(t, texts[0]))
			limits := make([]stint.Bound, len(texts))
			slowest := history.count
			for i, s := range nodes(t, server.URL(), len(texts), redisstore.Options{Now: clock.now, Modes: redisstore.Modes{AsyncUnsent: unsent}}) {
				l := parse(t, texts[i])
				limits[i] = under(t, s, redisstore.Async, texts[i])
				history.burst, history.count, slowest = max(history.burst, l.Burst()), max(history.count, l.Count()), min(slowest, l.Count())
			}
			if parse(t, texts[0]).Algorithm() == meter.TokenBucketInterval {
				history.burst += history.count // of a period that ends in the stretch
			}
			history.burst += int64(len(texts)) * unsent
			admitted, began := int64(0), clock.now()
			for range 20_000 {
				clock.add(time.Duration(rnd.Int64N(int64(400 * time.Microsecond))))
				if rnd.IntN(3000) == 0 {
					clock.add(time.Second)
					began += int64(time.Second)
				}
				cost := 1 + rnd.Int64N(3)
				if take(t, limits[rnd.IntN(len(limits))], "k", cost).Allowed {
					history.admit(t, clock.now(), cost)
					admitted += cost
				}
			}
			if least := (clock.now() - began) / int64(time.Millisecond) * slowest / 1000 * 9 / 10; admitted < least {
				t.Errorf("%d admitted of at least %d", admitted, least)
			}
		})
	}
}

// TestShares adds up what the shares of several nodes let through at once.
func TestShares(t *testing.T) {
	server := redistest.Start(t)
	clock := newVirtual()
	stores := nodes(t, server.URL(), 3, redisstore.Options{Now: clock.now, Modes: redisstore.Modes{Nodes: 3}})
	for text, want := range map[string]int64{"100/1s": 99, "100/1m fixed_window": 99, "100/1m sliding_log": 99, "2/1h": 3} {
		admitted := int64(0)
		for _, s := range stores {
			limit := bindIn(t, s, redisstore.Share, text)
			for range 200 {
				admitted += take(t, limit, "k", 1).Taken
			}
			if got := limit.Limits()[0].String(); got != text {
				t.Errorf("%q is said to be %q", text, got)
			}
		}
		if admitted != want {
			t.Errorf("%s: %d admitted at once by three, want %d", text, admitted, want)
		}
	}
	if n := calls(t, server); n != 0 {
		t.Errorf("%d calls", n)
	}
}
