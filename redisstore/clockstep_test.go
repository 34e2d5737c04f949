package redisstore_test

import (
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestClockStepExpiry steps the clock of a real server past the end of what is
// kept: until then it counts, and then it is gone, and the key as if never seen.
// After a step back nothing is gone that still counts.
func TestClockStepExpiry(t *testing.T) {
	server, clock := redistest.StartClock(t)
	c := client(t, server.Addr)
	store := open(t, server.URL(), redisstore.Options{Modes: redisstore.Modes{DenialCache: -1}})
	for _, text := range []string{
		"10/1h", "7/1h", "10/1h leaky_queue", "10/1h token_bucket_interval", "10/1h fixed_window", "10 per day in Europe/Paris", "10/1h fixed_window from first",
		"10/1h sliding_log", "10/1h sliding_counter", "10/1h sliding_buckets",
	} {
		limit := bind(t, store, text)
		expect := func(when string, remaining int64, kept int) {
			t.Helper()
			d, err := limit.Decide(ctx, meter.OpPeek, "a", 1)
			if err != nil || d.Remaining > remaining || remaining == d.Limit && d.ResetAfter+d.Delay != 0 || (d.Remaining == d.Limit) != (kept == 0) {
				t.Errorf("%s, %s: %+v, %v", text, when, d, err)
			}
			if all := keys(t, c); len(all) != kept {
				t.Errorf("%s, %s: keys %q", text, when, all)
			}
		}
		whole := limit.Limits()[0].Capacity()
		d := take(t, limit, "a", whole)
		for d.ResetAfter < time.Minute { // a window that is about to end
			clock.Step(t, 2*time.Minute)
			d = take(t, limit, "a", whole)
		}
		clock.Step(t, d.ResetAfter/2)
		expect("halfway", whole-1, 1)
		clock.Step(t, d.ResetAfter/2-20*time.Second)
		expect("soon before the end", whole-1, 1)
		clock.Step(t, 20*time.Second+5*time.Millisecond)
		expect("at the end", whole, 0)
		if again := take(t, limit, "a", whole); !again.Allowed || again.Remaining != 0 {
			t.Errorf("%s, as if never seen: %+v", text, again)
		}
		clock.Step(t, -24*time.Hour)
		expect("a day before", 0, 1)
		do(t, c, "FLUSHALL")
	}
}

// TestClockStepForgotten steps the clock of a real server back over the end of a window
// that it has forgotten: the window begins again, once. A bucket, a log, a counter and
// parts admit no more than otherwise.
func TestClockStepForgotten(t *testing.T) {
	server, clock := redistest.StartClock(t)
	c := client(t, server.Addr)
	store := open(t, server.URL(), redisstore.Options{Modes: redisstore.Modes{DenialCache: -1}})
	for text, most := range map[string]int{
		"5/1h fixed_window": 15, "5/1h token_bucket_interval": 15, // 10, without the step
		"5/1h": 5, "5/1h sliding_log": 5, "5/1h sliding_counter": 5, "5/1h sliding_buckets": 5,
	} {
		limit := bind(t, store, text)
		end := int64(0) // of a window, in µs
		moveTo := func(before time.Duration) {
			now, err := do(t, c, "TIME").Int64Slice()
			if err != nil {
				t.Fatal(err)
			}
			at := now[0]*1_000_000 + now[1]
			if end == 0 {
				end = (at/3_600_000_000 + 2) * 3_600_000_000
			}
			clock.Step(t, time.Duration(end-at)*time.Microsecond-before)
		}
		passed := 0
		ask := func() {
			for take(t, limit, "a", 1).Allowed {
				passed++
			}
		}
		moveTo(20 * time.Second)
		ask()
		moveTo(-10 * time.Second)
		_, _ = limit.Decide(ctx, meter.OpPeek, "a", 1) // a state that has ended is gone once it is read
		moveTo(10 * time.Second)
		ask()
		moveTo(-20 * time.Second)
		ask()
		t.Logf("%s: %d passed, at most %d may", text, passed, most)
		if passed > most {
			t.Errorf("%s: %d passed about the end of a window, at most %d may", text, passed, most)
		}
	}
}

// TestClockStepLeases takes a node away with all in hand that may be, and steps
// the clock of a real server back by an hour: what the node had in hand ends two
// seconds later all the same, so that another has something to spend.
func TestClockStepLeases(t *testing.T) {
	need.Time(t)
	server, clock := redistest.StartClock(t)
	way := redistest.NewProxy(t, server.Addr)
	o := redisstore.Options{Prefix: "leases"}
	dead, lives := open(t, way.URL(), o), open(t, server.URL(), o)
	const text = "10000/1s burst 2000"
	limits := map[*redisstore.Store]stint.Bound{dead: bindIn(t, dead, redisstore.Lease, text), lives: bindIn(t, lives, redisstore.Lease, text)}
	leased := func(s *redisstore.Store) (is bool) {
		before, passed := calls(t, server), int64(0)
		for begun := time.Now(); time.Since(begun) < 200*time.Millisecond; time.Sleep(time.Millisecond) {
			for range 12 {
				passed += take(t, limits[s], "k", 1).Taken
			}
		}
		return passed > 400 && calls(t, server)-before < passed/5
	}
	eventually(t, "at first, each decision is asked for", func() bool { return leased(dead) })
	way.Set(redistest.Fault{Refuse: true})
	way.Reset()
	clock.Step(t, -time.Hour)
	eventually(t, "an hour back, each decision is asked for", func() bool { return leased(lives) })
}
