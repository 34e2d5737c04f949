package proof_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/test/proof/crowd"
)

// An entry is one way into the limiter. Open binds a limit there, for one test.
type entry struct {
	name string
	open func(t *testing.T, text string) crowd.Take
}

// entryLimits drain and begin within milliseconds, so that a goroutine that
// stands still in the middle of a call does so for longer than that.
var entryLimits = []string{
	"1000/s burst 3",
	"7/1ms",
	"500/s burst 40", // of which mode lease hands out parts
	"20/50ms token_bucket_interval",
	"20/20ms fixed_window",
	"10/10ms sliding_log",
	"20/50ms sliding_counter",
	"20/50ms sliding_buckets parts 10",
	"30/1h",
}

// rounds is how many an entry point gets: those in this process are short, and on a
// busy machine few of them are a race.
func rounds(entry string) int {
	if strings.Contains(entry, "Redis") {
		return scaled(200, 400, 5000)
	}
	return scaled(1000, 2000, 5000)
}

// TestEnvelopeEntries races takes through every way into the library, in
// memory and over a real Redis, with far more goroutines and threads than
// cores, and holds what passed to the limit's envelope.
func TestEnvelopeEntries(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4 * runtime.NumCPU()))
	socket := startRedis(t)
	entries := []entry{
		{"Limiter", func(t *testing.T, text string) crowd.Take {
			return byLimiter(t, memstore.New(memstore.Options{}), text)
		}},
		{"Limiter, many keys at once", byBatch},
		{"Limiter, one of two reservations cancelled", func(t *testing.T, text string) crowd.Take {
			return byReservation(t, memstore.New(memstore.Options{}), text)
		}},
		{"Limiter, waits", byWait},
		{"All", byAll},
		{"Store of two layers", byStore},
		{"policy", func(t *testing.T, text string) crowd.Take { return byPolicy(t, memstore.New(memstore.Options{}), text) }},
		{"policy, two requests", byRequests},
		{"middleware", byMiddleware},
		{"middleware of rules", byRules},
		{"Redis", func(t *testing.T, text string) crowd.Take { return byLimiter(t, sharedStore(t, socket), text) }},
		{"Redis, mode strict", func(t *testing.T, text string) crowd.Take {
			return byLimiter(t, sharedStore(t, socket).Mode(redisstore.Strict), text)
		}},
		{"Redis, one of two reservations cancelled", func(t *testing.T, text string) crowd.Take {
			return byReservation(t, sharedStore(t, socket), text)
		}},
		{"Redis, mode lease", func(t *testing.T, text string) crowd.Take {
			return byLimiter(t, sharedStore(t, socket).Mode(redisstore.Lease), text)
		}},
		{"policy over Redis", func(t *testing.T, text string) crowd.Take { return byPolicy(t, sharedStore(t, socket), text) }},
	}
	for _, e := range entries {
		t.Run(e.name+" in rounds", func(t *testing.T) { crowd.Rounds(t, rounds(e.name), e.open(t, "1/1h")) })
		for i, text := range entryLimits {
			for j, goroutines := range []int{2, 64, 1000} {
				if brief() && (i+j)%3 != 0 {
					continue // each limit with each crowd, at some entry
				}
				t.Run(fmt.Sprint(e.name, " ", text, " by ", goroutines), func(t *testing.T) {
					crowd.Run(t, spec(parse(t, text)), goroutines, time.Duration(scaled(40, 80, 2000))*time.Millisecond, e.open(t, text))
				})
			}
		}
	}
}

func byLimiter(t *testing.T, store stint.Store, text string) crowd.Take {
	l := made.Limiter(t, store, t.Name(), parse(t, text))
	return func(key string) (bool, error) { return l.Allow(context.Background(), key) }
}

// byBatch takes from the key beside others, in one call.
func byBatch(t *testing.T, text string) crowd.Take {
	l := made.Limiter(t, memstore.New(memstore.Options{}), t.Name(), parse(t, text))
	return func(key string) (bool, error) {
		passed := make([]bool, 3)
		err := l.AllowEach(context.Background(), []string{"a", key, "b"}, 1, passed)
		return passed[1], err
	}
}

// byReservation reserves, and cancels half of what passed: as if it had never
// been, it is no more than the others left.
func byReservation(t *testing.T, store stint.Store, text string) crowd.Take {
	l := made.Limiter(t, store, t.Name(), parse(t, text))
	var n atomic.Int64
	return func(key string) (bool, error) {
		_, charge, err := l.Reserve(context.Background(), key, 1, time.Hour)
		if err != nil || charge == nil {
			return false, err
		}
		if n.Add(1)%2 == 0 {
			_, err := charge.Cancel(context.Background())
			return false, err
		}
		_, err = charge.Settle(context.Background(), 1)
		return true, err
	}
}

// byWait waits for a moment.
func byWait(t *testing.T, text string) crowd.Take {
	l := made.Limiter(t, memstore.New(memstore.Options{}), t.Name(), parse(t, text))
	return func(key string) (bool, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		err := l.Wait(ctx, key, 1)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return false, err
		}
		return err == nil, nil
	}
}

// byAll takes under the limit on one key and a wide one on another, as one
// request.
func byAll(t *testing.T, text string) crowd.Take {
	store := memstore.New(memstore.Options{})
	own := made.Limiter(t, store, "own", parse(t, text))
	wide := made.Limiter(t, store, "wide", stint.New(1e9, time.Millisecond))
	return func(key string) (bool, error) {
		d, err := stint.All(wide.Key("all"), own.Key(key)).Take(context.Background())
		return d.Allowed, err
	}
}

// byStore takes under the limit on one key and a wide one on another.
func byStore(t *testing.T, text string) crowd.Take {
	store := memstore.New(memstore.Options{})
	own := made.Bound(t, store, "own", parse(t, text))
	wide := made.Bound(t, store, "wide", stint.New(1e9, time.Millisecond))
	return func(key string) (bool, error) {
		d, err := store.Decide(context.Background(), meter.OpTake, []stint.Layer{{Bound: wide, Key: "all"}, {Bound: own, Key: key}}, 1)
		return d.Allowed, err
	}
}

func byPolicy(t *testing.T, store stint.Store, text string) crowd.Take {
	p := newPolicy(t, store, text)
	return func(key string) (bool, error) {
		var r policy.Result
		err := p.Decide(context.Background(), policy.Map{"ip": key}, 1, &r)
		return r.Decision.Allowed, err
	}
}

// byRequests asks twice in one request, of which one only looks.
func byRequests(t *testing.T, text string) crowd.Take {
	p := newPolicy(t, memstore.New(memstore.Options{}), text)
	return func(key string) (bool, error) {
		var r policy.Result
		err := p.DecideAll(context.Background(), []policy.Request{{Attributes: policy.Map{"ip": "192.0.2.8"}, Cost: 1, Peek: true}, {Attributes: policy.Map{"ip": key}, Cost: 1}}, &r)
		return r.Decision.Allowed, err
	}
}

func newPolicy(t *testing.T, store stint.Store, text string) *policy.Policy {
	return made.Policy(t, store, made.Rules(t, fmt.Sprintf(`{"rules": [{"name": %q, "key": ["ip"], "limits": [%q]}]}`, "entry", text)), policy.Options{})
}

func byMiddleware(t *testing.T, text string) crowd.Take {
	l := made.Limiter(t, memstore.New(memstore.Options{}), "entry", parse(t, text))
	guard, err := httplimit.New(l, httplimit.IPKey(httplimit.ClientIP{}), httplimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return behind(guard)
}

func byRules(t *testing.T, text string) crowd.Take {
	guard, err := httplimit.NewPolicy(newPolicy(t, memstore.New(memstore.Options{}), text), httplimit.ClientIP{}, httplimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return behind(guard)
}

// behind asks a handler that a guard stands before.
func behind(guard func(http.Handler) http.Handler) crowd.Take {
	h := guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return func(key string) (bool, error) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = key + ":1"
		h.ServeHTTP(w, r)
		if w.Code != 200 && w.Code != 429 {
			return false, fmt.Errorf("status %d: %s", w.Code, w.Body)
		}
		return w.Code == 200, nil
	}
}

// sharedStore opens a store in the test's Redis, with keys of its own.
func sharedStore(t *testing.T, socket string) *redisstore.Store {
	store, err := redisstore.New(redisstore.Options{URL: "unix://" + socket, Prefix: t.Name(), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}
