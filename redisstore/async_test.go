package redisstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
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
// it is counted all the same, behind what was let through since.
func TestAsyncChanged(t *testing.T) {
	clock := newVirtual()
	var loses atomic.Bool
	driver := &front{Driver: redisstore.NewDriver(client(t, redistest.Start(t).Addr)), eval: func(_ context.Context, _, args []string, call func([]string) (any, error)) (any, error) {
		if loses.Load() && args[0] == "n" && args[2] == "10" {
			return nil, errors.New("the connection was lost")
		}
		return call(args)
	}}
	s := open(t, "", redisstore.Options{Driver: driver, Now: clock.now, Modes: redisstore.Modes{AsyncUnsent: 100}})
	limit := func(m redisstore.Mode, text string) stint.Bound {
		b, err := s.Mode(m).Bind("l", parse(t, text))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	sweep := func() {
		clock.add(time.Second)
		s.Sweep()
	}
	take(t, limit(redisstore.Async, "1000/1000h fixed_window"), "k", 10)
	loses.Store(true)
	sweep()
	take(t, limit(redisstore.Async, "2000/1000h fixed_window"), "k", 5)
	sweep()
	loses.Store(false)
	sweep()
	if d := peek(t, limit(redisstore.Strict, "2000/1000h fixed_window"), "k"); d.Remaining != 2000-15 {
		t.Errorf("%+v: 15 were let through", d)
	}
}

// TestAsyncRetry has a client wait as long as it is told: then it gets the answer of the server,
// not one by a sum that is out of date. A bucket's wait is exact from the first.
func TestAsyncRetry(t *testing.T) {
	server := redistest.Start(t)
	for _, text := range []string{
		"1000/1s burst 400", "400/300ms fixed_window", "400/300ms sliding_log", "400/300ms sliding_counter",
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

// TestAsyncNever: a cost above the limit never passes, where more may be unsent than it
// lets through at once, too.
func TestAsyncNever(t *testing.T) {
	server := redistest.Start(t)
	for _, text := range []string{"10/1s", "10/1s fixed_window", "10/1s sliding_log"} {
		s := nodes(t, server.URL(), 1, redisstore.Options{Now: newVirtual().now, Modes: redisstore.Modes{AsyncUnsent: 1000}})[0]
		limit := bindIn(t, s, redisstore.Async, text)
		for range 2 { // first unknown, then known
			if d := take(t, limit, "k", 11); d.Allowed || d.RetryAfter != stint.Never {
				t.Errorf("%s: %+v, want never", text, d)
			}
			take(t, limit, "k", 1)
		}
	}
}

// TestAsyncEnvelope takes at random from several nodes on a virtual clock, and
// compares with N·U above B + d/T.
func TestAsyncEnvelope(t *testing.T) {
	server := redistest.Start(t)
	clock, rnd := newVirtual(), rand.New(rand.NewPCG(5, 5))
	const n, unsent = 3, 20
	limit := parse(t, "1000/1s burst 300")
	stores := nodes(t, server.URL(), n, redisstore.Options{Now: clock.now, Modes: redisstore.Modes{AsyncUnsent: unsent}})
	history := envelopeOf(limit)
	history.burst += n * unsent
	admitted := int64(0)
	began := clock.now()
	limits := make([]stint.Bound, n)
	for i, s := range stores {
		limits[i] = bindIn(t, s, redisstore.Async, limit.String())
	}
	for range 30_000 {
		clock.add(time.Duration(rnd.Int64N(int64(time.Millisecond))))
		if rnd.IntN(3000) == 0 {
			clock.add(time.Second)
			began += int64(time.Second)
		}
		d := take(t, limits[rnd.IntN(n)], "k", 1)
		if d.Allowed {
			history.admit(t, clock.now(), 1)
			admitted++
		}
	}
	if whole := (clock.now() - began) / int64(time.Millisecond); admitted < whole*9/10 {
		t.Errorf("%d admitted of about %d", admitted, whole)
	}
}

// TestAsyncSendsOnClose takes something and closes: it is counted.
func TestAsyncSendsOnClose(t *testing.T) {
	server := redistest.Start(t)
	stores := nodes(t, server.URL(), 2, redisstore.Options{Modes: redisstore.Modes{AsyncUnsent: 100, AsyncPeriod: time.Hour}})
	limit := bindIn(t, stores[0], redisstore.Async, "1000/1000h fixed_window")
	for range 7 {
		take(t, limit, "k", 3)
	}
	if err := stores[0].Close(); err != nil {
		t.Fatal(err)
	}
	if d := take(t, bindIn(t, stores[1], redisstore.Strict, "1000/1000h fixed_window"), "k", 1); d.Remaining != 1000-21-1 {
		t.Errorf("%+v", d)
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
