package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A canned answer is that of all calls, and how long it takes.
type canned struct {
	reply any
	err   error
	after time.Duration
}

func saying(says *atomic.Pointer[canned]) redisstore.Driver {
	return answers(func(ctx context.Context, _ []string) (any, error) {
		one := says.Load()
		if err := after(ctx, one.after); err != nil {
			return nil, err
		}
		return one.reply, one.err
	})
}

// TestStatsResults ends calls in every way: each counts once, as what it was,
// and its duration only if it was made.
func TestStatsResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := new(atomic.Pointer[canned])
		store, err := redisstore.New(redisstore.Options{Driver: saying(says)})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		limit := bind(t, store, "1000000/s")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		var want redisstore.Results
		made := uint64(0)
		for _, step := range []struct {
			name  string
			ctx   context.Context
			err   error // of the driver
			after time.Duration
			is    error // of the answer
			count *uint64
			made  bool
			reply any
		}{
			{"answered", t.Context(), nil, 0, nil, &want.OK, true, int64(1)},
			{"no answer of the script", t.Context(), nil, 0, redisstore.ErrAmbiguous, &want.Ambiguous, true, "OK"},
			{"no permission", t.Context(), redisstore.ReplyError("NOPERM no"), 0, redisstore.ErrConfiguration, &want.Configuration, true, nil},
			{"no memory", t.Context(), redisstore.ReplyError("OOM full"), 0, redisstore.ErrNotExecuted, &want.NotExecuted, true, nil},
			{"gone before", gone, nil, 0, context.Canceled, &want.NotExecuted, false, nil},
			{"reset", t.Context(), errors.New("connection reset"), 0, redisstore.ErrAmbiguous, &want.Ambiguous, true, nil},
			{"too late", t.Context(), nil, time.Second, context.DeadlineExceeded, &want.Ambiguous, true, nil},
			{"reset again", t.Context(), errors.New("connection reset"), 0, redisstore.ErrAmbiguous, &want.Ambiguous, true, nil},
			{"open", t.Context(), nil, 0, redisstore.ErrUnavailable, &want.Unavailable, false, nil},
		} {
			says.Store(&canned{step.reply, step.err, step.after})
			if _, err := limit.Decide(step.ctx, meter.OpTake, "key", 1); !errors.Is(err, step.is) {
				t.Errorf("%s: %v, want %v", step.name, err, step.is)
			}
			if *step.count++; step.made {
				made++
			}
			stats := store.Stats()
			if stats.Results != want || sum(stats.Took) != made {
				t.Errorf("%s:\n%+v, %d made; want\n%+v, %d", step.name, stats.Results, sum(stats.Took), want, made)
			}
		}
		if took := store.Stats().Took; took.Sum != 15*time.Millisecond {
			t.Errorf("all calls took %v, want the one deadline", took.Sum)
		}
		time.Sleep(time.Minute) // for the call that was left behind
	})
}

// TestStatsHeartbeat counts beats as what they were, too.
func TestStatsHeartbeat(t *testing.T) {
	for want, answer := range map[redisstore.Results]canned{
		{OK: 1}:            {reply: int64(1)},
		{Ambiguous: 1}:     {reply: "OK"},
		{Configuration: 1}: {err: redisstore.ReplyError("NOPERM no")},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, err := redisstore.New(redisstore.Options{Driver: answers(func(context.Context, []string) (any, error) { return answer.reply, answer.err })})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			store.CountNodes(nil)
			time.Sleep(time.Millisecond)
			if got := store.Stats().Results; got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

func sum(d redisstore.Durations) (n uint64) {
	for _, count := range d.Counts {
		n += count
	}
	return n
}

// TestStatsTook has calls take exactly each bound, and a nanosecond more.
func TestStatsTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := new(atomic.Pointer[canned])
		store, err := redisstore.New(redisstore.Options{Driver: saying(says), Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		limit := bind(t, store, "1000000/s")
		var want redisstore.Durations
		for i, bound := range want.Bounds() {
			for more := range time.Duration(2) {
				says.Store(&canned{err: redisstore.ReplyError("OOM full"), after: bound + more})
				if _, err := limit.Decide(t.Context(), meter.OpTake, "key", 1); !errors.Is(err, redisstore.ErrNotExecuted) {
					t.Fatal(err)
				}
				want.Counts[i+int(more)]++
				want.Sum += bound + more
			}
		}
		if got := store.Stats().Took; got != want {
			t.Errorf("%+v\nwant\n%+v", got, want)
		}
	})
}

// TestStatsDenialsCached denies three times, of which the server does once.
func TestStatsDenialsCached(t *testing.T) {
	store := open(t, redistest.Start(t).URL(), redisstore.Options{Now: newVirtual().now})
	limit := bindIn(t, store, redisstore.Strict, "5/1s")
	for i, want := range []struct {
		allowed bool
		cached  uint64
	}{{true, 0}, {false, 0}, {false, 1}, {false, 2}} {
		if d := take(t, limit, "key", 5); d.Allowed != want.allowed || store.Stats().DenialsCached != want.cached {
			t.Errorf("request %d: %+v, %d cached; want %+v", i, d, store.Stats().DenialsCached, want)
		}
	}
}

// TestStatsNodes counts calls by the server that they go to.
func TestStatsNodes(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	store := open(t, cluster.URL(), redisstore.Options{})
	knows(t, store)
	limit := bind(t, store, "10/1h")
	for i := range 64 {
		take(t, limit, fmt.Sprint("client", i), 1)
	}
	calls, addresses := uint64(0), 0
	for _, n := range store.Stats().Nodes {
		if calls += n.Calls; n.Calls > 0 && n.Took > 0 && strings.Contains(n.Node, ":") {
			addresses++
		}
	}
	if calls < 64 || addresses != 3 {
		t.Errorf("%d calls, %d servers with an address: %+v", calls, addresses, store.Stats().Nodes)
	}
	if err := store.Reset(ctx, []stint.Layer{{Bound: limit, Key: "client1"}, {Bound: limit, Key: "client2"}}); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if _, err := store.Decide(ctx, meter.OpTake, []stint.Layer{{Bound: limit, Key: fmt.Sprint("client", i)}, {Bound: limit, Key: fmt.Sprint("client", i+32)}}, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := store.Stats().CrossSlot; n == 0 || n > 8 {
		t.Errorf("%d of 8 requests were on several nodes", n)
	}
}
