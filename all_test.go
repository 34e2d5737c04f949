package stint_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
)

func namedLimiter(t testing.TB, s stint.Store, name string, limits ...string) *stint.Limiter {
	t.Helper()
	parsed := make([]stint.Limit, len(limits))
	for i, text := range limits {
		parsed[i] = parse(t, text)
	}
	return made.Limiter(t, s, name, parsed...)
}

func left(t testing.TB, l *stint.Limiter, key string) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), key, 1)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

func TestAllTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		defer s.Close()
		perIP, perUser := namedLimiter(t, s, "ip", "3/h", "100/24h"), namedLimiter(t, s, "user", "10/h")
		r := stint.All(perIP.Key("192.0.2.7"), perUser.Key("u").Cost(4))
		for i, want := range []struct {
			allowed   bool
			remaining int64
			tightest  int
			denied    stint.LimitSet
		}{{true, 1, 2, 0}, {true, 0, 2, 0}, {false, 0, 2, 1 << 2}} {
			d, err := r.Take(t.Context())
			if err != nil || d.Allowed != want.allowed || d.Remaining != want.remaining || d.Tightest != want.tightest || d.Denied != want.denied {
				t.Errorf("request %d: %+v, %v; want %+v", i, d, err, want)
			}
		}
		if a, b := left(t, perIP, "192.0.2.7"), left(t, perUser, "u"); a != 1 || b != 2 {
			t.Errorf("%d and %d are left; a denial charged something", a, b)
		}
	})
}

func TestAllFaults(t *testing.T) {
	s, other := memstore.New(memstore.Options{}), memstore.New(memstore.Options{})
	a, b := namedLimiter(t, s, "a", "1/s"), namedLimiter(t, other, "b", "1/s")
	for name, c := range map[string]struct {
		r    *stint.Request
		want error
	}{
		"two stores": {stint.All(a.Key("k"), b.Key("k")), stint.ErrLayers},
		"twice":      {stint.All(a.Key("k"), a.Key("k")), stint.ErrLayers},
		"negative":   {stint.All(a.Key("k").Cost(-1)), stint.ErrCost},
		"zero part":  {stint.All(stint.Part{}), stint.ErrLayers},
		"unmade":     {stint.All((&stint.Limiter{}).Key("k")), stint.ErrLayers},
		"free":       {stint.All(a.Key("k").Cost(0), b.Key("k")), stint.ErrLayers},
		"nothing":    {stint.All(), stint.ErrLayers},
		"zero":       {&stint.Request{}, stint.ErrLayers},
	} {
		if _, err := c.r.Take(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%s: Take: %v", name, err)
		}
		if d, err := c.r.Peek(t.Context()); d.Allowed || !errors.Is(err, c.want) {
			t.Errorf("%s: Peek: %+v, %v", name, d, err)
		}
		if _, _, err := c.r.Reserve(t.Context(), time.Second); !errors.Is(err, c.want) {
			t.Errorf("%s: Reserve: %v", name, err)
		}
		if _, err := c.r.WaitReserve(t.Context(), time.Second); !errors.Is(err, c.want) {
			t.Errorf("%s: WaitReserve: %v", name, err)
		}
		if err := c.r.Wait(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%s: Wait: %v", name, err)
		}
	}
	if err := stint.All(a.Key("k").Cost(5)).Wait(t.Context()); err == nil || strings.Contains(err.Error(), "limit of 0") { // 0 such requests
		t.Errorf("a part above its limit: %v", err)
	}
	for name, r := range map[string]*stint.Request{"free": stint.All(a.Key("k").Cost(0)), "two that are free": stint.All(a.Key("k").Cost(0), a.Key("l").Cost(0))} {
		if d, err := r.Take(t.Context()); err != nil || !d.Allowed {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		if d, reservation, err := r.Reserve(t.Context(), time.Second); err != nil || !d.Allowed || reservation != nil {
			t.Errorf("%s: %+v, %v, %v", name, d, reservation, err)
		}
		if err := r.Wait(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAllReserve settles one request and 4,000 tokens at what they were.
func TestAllReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		defer s.Close()
		requests, tokens := namedLimiter(t, s, "requests", "10/h sliding_log"), namedLimiter(t, s, "tokens", "10000/h sliding_log")
		r := stint.All(requests.Key("u"), tokens.Key("u").Cost(4000))
		d, reserved, err := r.Reserve(t.Context(), time.Minute)
		if err != nil || !d.Allowed || d.Remaining != 1 || d.Tightest != 1 {
			t.Fatalf("%+v, %v", d, err)
		}
		const want = "stint: 1 costs to settle a reservation of 2 parts: give one for each part, in order"
		if _, err := reserved.Settle(t.Context(), 1200); !errors.Is(err, stint.ErrCost) || err.Error() != want {
			t.Errorf("one cost for two parts: %v", err)
		}
		again := requests.Reservation(reserved.ID())
		for range 2 { // it counts once
			if _, err := again.Settle(t.Context(), 1, 1200); err != nil {
				t.Error(err)
			}
		}
		if a, b := left(t, requests, "u"), left(t, tokens, "u"); a != 9 || b != 8800 {
			t.Errorf("%d requests and %d tokens are left, want 9 and 8800", a, b)
		}
		d, _, err = stint.All(requests.Key("u"), tokens.Key("u").Cost(9000)).Reserve(t.Context(), time.Minute)
		if err != nil || d.Allowed || d.Denied != 1<<1 || left(t, requests, "u") != 9 {
			t.Errorf("%+v, %v; want a denial by the tokens that charges nothing", d, err)
		}
		_, reserved, err = r.Reserve(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reserved.Cancel(t.Context()); err != nil || left(t, requests, "u") != 9 || left(t, tokens, "u") != 8800 {
			t.Errorf("after a cancel %d and %d are left, %v", left(t, requests, "u"), left(t, tokens, "u"), err)
		}
	})
}

// TestAllReserveCountsDenials holds a limit that counts what it denies to it.
func TestAllReserveCountsDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		defer s.Close()
		counting, other := namedLimiter(t, s, "counting", "5/h sliding_log count_denied"), namedLimiter(t, s, "other", "1/h")
		r := stint.All(counting.Key("k"), other.Key("k"))
		for range 3 { // the first is not open any more, and excuses none
			_, reserved, err := r.Reserve(t.Context(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := reserved.Settle(t.Context(), 1, 1); reserved != nil && err != nil {
				t.Fatal(err)
			}
		}
		if n := left(t, counting, "k"); n != 2 {
			t.Errorf("%d are left: two denials were not counted", n)
		}
	})
}

func TestAllWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		defer s.Close()
		perSecond, perMinute := namedLimiter(t, s, "a", "1/s"), namedLimiter(t, s, "b", "10/m burst 2")
		r := stint.All(perSecond.Key("k"), perMinute.Key("k"))
		began := time.Now()
		for i, want := range []time.Duration{0, time.Second, 6 * time.Second, 12 * time.Second} {
			if err := r.Wait(t.Context()); err != nil || time.Since(began) != want {
				t.Errorf("request %d: after %v, %v; want %v", i, time.Since(began), err, want)
			}
		}
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		var early *stint.WaitError
		if err := r.Wait(short); !errors.As(err, &early) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 12*time.Second {
			t.Errorf("%v after %v; want a WaitError at once", err, time.Since(began))
		}
		never := stint.All(perSecond.Key("k").Cost(2), perMinute.Key("k"))
		if err := never.Wait(t.Context()); !errors.As(err, &early) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v; want that it can never pass", err)
		}
	})
}

// TestAllWaitCountsNoDenials waits under limits that count what they deny: asking
// again does not keep the caller out.
func TestAllWaitCountsNoDenials(t *testing.T) {
	for _, text := range []string{"1/10s sliding_log count_denied", "1/10s sliding_buckets parts 10 count_denied"} {
		synctest.Test(t, func(t *testing.T) {
			l := limiterOf(t, text)
			r := stint.All(l.Key("k"))
			began := time.Now()
			bound, stop := context.WithTimeout(bg, time.Hour)
			defer stop()
			for range 2 {
				if err := r.Wait(bound); err != nil {
					t.Errorf("%s: %v", text, err)
				}
			}
			if _, err := r.WaitReserve(bound, time.Minute); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			if waited := time.Since(began); waited > 22*time.Second {
				t.Errorf("%s: waited %v for three of 1/10s", text, waited)
			}
		})
	}
}

// TestAllUnderChangedLimits asks again with a request that was made before its
// limiters got other limits.
func TestAllUnderChangedLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		defer s.Close()
		a, b := namedLimiter(t, s, "a", "9/h"), namedLimiter(t, s, "b", "1/h")
		r := stint.All(a.Key("k"), b.Key("k"))
		if err := a.SetLimits(parse(t, "9/h"), parse(t, "9/24h"), parse(t, "9/1s burst 8 leaky_queue")); err != nil {
			t.Fatal(err)
		}
		if d, _, err := r.Reserve(bg, time.Minute); err != nil || d.Tightest != 3 {
			t.Errorf("%+v, %v; want limit 3 as the tightest", d, err)
		}
		gone, leave := context.WithCancel(bg)
		time.AfterFunc(ms, leave)
		if err := stint.All(a.Key("k")).Wait(gone); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if d, err := a.Peek(bg, "k", 1); err != nil || d.Remaining != 8 {
			t.Errorf("%+v, %v; want what gave up to be given back", d, err)
		}
	})
}

// TestAllWaitGivesUp leaves nothing charged under a leaky_queue.
func TestAllWaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		defer s.Close()
		queue, other := namedLimiter(t, s, "queue", "1/s leaky_queue burst 5"), namedLimiter(t, s, "other", "10/h sliding_log")
		r := stint.All(queue.Key("k"), other.Key("k").Cost(2))
		if err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second / 2); leave() }()
		if err := r.Wait(ctx); !errors.Is(err, context.Canceled) || left(t, other, "k") != 8 {
			t.Errorf("%v, and %d are left; want 8", err, left(t, other, "k"))
		}
		began := time.Now()
		if err := r.Wait(t.Context()); err != nil || time.Since(began) != time.Second/2 {
			t.Errorf("%v after %v: the place was not given back", err, time.Since(began))
		}
		reserved, err := r.WaitReserve(t.Context(), time.Minute)
		if err != nil || reserved == nil {
			t.Fatal(err)
		}
		if _, err := reserved.Settle(t.Context(), 1, 0); err != nil || left(t, other, "k") != 6 {
			t.Errorf("%v, and %d are left; want 6", err, left(t, other, "k"))
		}
	})
}

// TestAllRace lets many callers take, reserve and cancel the same keys: never
// does more pass than the limits let.
func TestAllRace(t *testing.T) {
	s := memstore.New(memstore.Options{})
	defer s.Close()
	a, b := namedLimiter(t, s, "a", "100/24h sliding_log"), namedLimiter(t, s, "b", "150/24h sliding_log")
	r := stint.All(a.Key("k"), b.Key("k").Cost(2))
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 30 {
				d, reserved, err := r.Reserve(context.Background(), time.Hour)
				switch {
				case err != nil:
					t.Error(err)
				case d.Allowed && rand.IntN(4) == 0:
					_, err = reserved.Cancel(context.Background())
				case d.Allowed:
					passed.Add(1)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for d, err := r.Take(t.Context()); d.Allowed && err == nil; d, err = r.Take(t.Context()) {
		passed.Add(1) // what was canceled at the very end
	}
	if n := passed.Load(); n != 75 || left(t, a, "k") != 25 || left(t, b, "k") != 0 {
		t.Errorf("%d passed, %d and %d are left; want 75, 25 and 0", n, left(t, a, "k"), left(t, b, "k"))
	}
}
