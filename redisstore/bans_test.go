package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// waits returns the wait that a decision says, 0 where it passes.
func waits(t testing.TB, b stint.Bound, op meter.Op, key string) time.Duration {
	t.Helper()
	d, err := b.Decide(ctx, op, key, 1)
	if err != nil || d.Allowed == (d.RetryAfter > 0) {
		t.Fatal(d, err)
	}
	return time.Duration(d.RetryAfter)
}

func forget(t testing.TB, s stint.Store, b stint.Bound, key string) {
	t.Helper()
	if err := s.Reset(ctx, []stint.Layer{{Bound: b, Key: key}}); err != nil {
		t.Fatal(err)
	}
}

// TestBlockShared has one process block a key, in every mode whose limit the server decides, while
// two repeat a denial without asking: the one says at once how long, and that the block ends; the
// other within a second.
func TestBlockShared(t *testing.T) {
	server := redistest.Start(t)
	for _, mode := range []redisstore.Mode{redisstore.Strict, redisstore.Lease, redisstore.Async} {
		t.Run(mode.String(), func(t *testing.T) {
			clock := newVirtual()
			two := nodes(t, server.URL(), 2, redisstore.Options{Now: clock.now})
			var both [2]*stint.Limiter
			for i := range both {
				var err error
				if both[i], err = stint.NewLimiter(two[i].Mode(mode), "login", parse(t, "20/10h burst 20 ban 1s")); err != nil {
					t.Fatal(err)
				}
			}
			wants := func(what string, i int, want time.Duration) {
				t.Helper()
				if d, err := both[i].Take(ctx, "a", 1); err != nil || time.Duration(d.RetryAfter) != want {
					t.Errorf("%s, process %d: %+v, %v, want %v", what, i, d, err, want)
				}
			}
			if d, err := both[0].Take(ctx, "a", 20); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			for i := range both {
				wants("full", i, 30*time.Minute)
			}
			if err := both[0].Block(ctx, "a", time.Hour); err != nil {
				t.Fatal(err)
			}
			wants("blocked", 0, time.Hour)
			clock.add(time.Second)
			wants("blocked", 1, time.Hour-time.Second)
			clock.add(40 * time.Minute)
			for i := range both {
				wants("blocked yet", i, 20*time.Minute-time.Second)
			}
			if err := both[0].Unblock(ctx, "a"); err != nil {
				t.Fatal(err)
			}
			wants("unblocked", 0, 0)
			clock.add(time.Second)
			wants("used, as before", 1, 19*time.Minute+58*time.Second)
		})
	}
}

// TestBanKey looks at what is in Redis: a ban outlives the state that it came from, expires
// by itself, goes with a reset, also one by a limit without it, and is there only where a
// limit has bans and has denied.
func TestBanKey(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	store := open(t, server.URL(), redisstore.Options{Prefix: "bans"})
	plain, with := bind(t, store, "2/1s"), bind(t, store, "2/1s ban 1h")
	take(t, with, "b", 2)
	for _, b := range []stint.Bound{plain, with} {
		for take(t, b, "a", 2).Allowed { // again, until it is denied
			continue
		}
	}
	eventually(t, "the states are still there", func() bool { return len(keys(t, c)) == 1 })
	key := keys(t, c)[0]
	if !strings.Contains(key, "}::ban:") || !strings.HasSuffix(key, "/gcra%3A1s:a") {
		t.Error(key)
	}
	if ms, err := do(t, c, "PTTL", key).Int64(); err != nil || ms <= 0 || ms > time.Hour.Milliseconds()+2 {
		t.Errorf("it expires after %d ms, %v", ms, err)
	}
	if waits(t, with, meter.OpTake, "a") == 0 || waits(t, with, meter.OpTake, "b") != 0 {
		t.Error("a should be banned, and b not")
	}
	forget(t, store, with, "a")
	if waits(t, with, meter.OpTake, "a") != 0 {
		t.Error("banned after a reset")
	}
	if exists(t, c, key) {
		t.Error("the ban is still there")
	}
	if err := store.Block(ctx, []stint.Layer{{Bound: with, Key: "a"}, {Bound: plain, Key: "b"}}, time.Minute+1500*time.Microsecond); err != nil {
		t.Error(err)
	}
	if ms, err := do(t, c, "PTTL", key).Int64(); err != nil || ms <= 0 || ms > time.Minute.Milliseconds()+3 {
		t.Errorf("a block expires after %d ms, %v", ms, err)
	}
	do(t, c, "SET", key, "nonsense")
	if err := store.Block(ctx, []stint.Layer{{Bound: with, Key: "a"}}, time.Hour); !errors.Is(err, redisstore.ErrConfiguration) {
		t.Errorf("a block over a ban that is none: %v", err)
	}
	if d, err := with.Decide(ctx, meter.OpTake, "a", 1); err == nil {
		t.Errorf("a ban that is none: %+v", d)
	}
}

// TestBanFlood spends the budget for new keys: who is banned stays so, though its state has
// gone, and newcomers, whose cell denies, are not banned, nor is a key made for them.
func TestBanFlood(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	clock := newVirtual()
	store := open(t, server.URL(), redisstore.Options{Prefix: "flood", Now: clock.now, NewKeys: 1_000_000})
	b := bind(t, store, "2/1m ban 1h")
	take(t, b, "a", 2)
	waits(t, b, meter.OpTake, "a")
	clock.add(30 * time.Minute)
	do(t, c, "DEL", redisstore.StateOf(redisstore.Options{Prefix: "flood"}, "a", b))
	store.Flood()
	if got := waits(t, b, meter.OpTake, "a"); got != 30*time.Minute {
		t.Errorf("the banned key: %v", got)
	}
	for i := range 3000 {
		if got := waits(t, b, meter.OpTake, fmt.Sprint("new ", i)); got > time.Minute {
			t.Fatalf("newcomer %d: %v", i, got)
		}
	}
	for _, key := range keys(t, c) {
		if strings.Contains(key, "}::ban:") && !strings.HasSuffix(key, ":a") {
			t.Errorf("a ban of a newcomer: %s", key)
		}
	}
}

// TestBanNodes bans under one of two limits whose keys are on different nodes of a cluster.
func TestBanNodes(t *testing.T) {
	need.Time(t)
	clock := newVirtual()
	a := newApart(t, redisstore.Options{Now: clock.now, NewKeys: -1})
	store := a.store
	user, ip := bind(t, store, "3/1m ban 1h"), bind(t, store, "5/1m ban 2h")
	other, _ := a.keys("mallory")
	ask := func(op meter.Op, cost int64) stint.Decision {
		t.Helper()
		d, err := store.Decide(ctx, op, []stint.Layer{{Bound: ip, Key: other}, {Bound: user, Key: "mallory"}}, cost)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	wants := func(what string, d stint.Decision, denied stint.LimitSet, retry time.Duration) {
		t.Helper()
		if d.Denied != denied || time.Duration(d.RetryAfter) != retry {
			t.Errorf("%s: %+v", what, d)
		}
	}
	if d := ask(meter.OpTakeUpTo, 10); d.Taken != 3 {
		t.Errorf("take_up_to: %+v", d)
	}
	wants("a peek", ask(meter.OpPeek, 1), 2, 20*time.Second)
	wants("a take", ask(meter.OpTake, 1), 2, time.Hour)
	wants("the neighbour", take(t, ip, other, 2), 0, 0)
	wants("the neighbour by itself", take(t, ip, other, 1), 1, 2*time.Hour)
	clock.add(time.Minute)
	wants("both", ask(meter.OpTake, 1), 3, 2*time.Hour-time.Minute)
	clock.add(59 * time.Minute)
	wants("one", ask(meter.OpTake, 1), 1, time.Hour)
	clock.add(time.Hour)
	wants("none", ask(meter.OpTake, 1), 0, 0)
	if _, id, err := store.Reserve(ctx, []stint.Layer{{Bound: ip, Key: other}, {Bound: user, Key: "mallory"}}, 3, time.Hour); err != nil || id != "" {
		t.Errorf("a reservation of more than there is: %q, %v", id, err)
	}
	wants("after it", ask(meter.OpPeek, 1), 2, time.Hour)
}

// TestHeldUp has calls wait in the socket of a server that stands still, until what was open when they
// were made excuses nothing any more, and nobody waits for them: their denials are not noted.
func TestHeldUp(t *testing.T) {
	need.Time(t)
	server := redistest.Start(t)
	patient := openPlain(t, redisstore.Options{URL: server.URL(), Prefix: "held", Timeout: time.Minute})
	var opened []stint.ReservationID
	var calls []func() error
	peeks := map[string]stint.Bound{}
	for _, text := range []string{"5/h ban 1h", "5 per 1h sliding_log ban 1h", "5 per day in UTC ban 1h", "5 per 1h fixed_window count_denied", "5 per 1h sliding_log count_denied"} {
		there := bind(t, patient, text)
		for _, how := range []string{"take", "reserve"} {
			key, store := text+" "+how, openPlain(t, redisstore.Options{URL: server.URL(), Prefix: "held", Timeout: 300 * time.Millisecond})
			here := bind(t, store, text)
			for range 5 {
				d, id, err := patient.Reserve(ctx, []stint.Layer{{Bound: there, Key: key, Excuses: time.Second}}, 1, time.Minute)
				if err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				opened = append(opened, id)
			}
			if d, err := here.Decide(ctx, meter.OpPeek, key, 1); err != nil || d.Allowed { // it is connected
				t.Fatal(d, err)
			}
			peeks[key] = there
			calls = append(calls, func() (err error) {
				if how == "take" {
					_, err = here.Decide(ctx, meter.OpTake, key, 1)
				} else {
					_, _, err = store.Reserve(ctx, []stint.Layer{{Bound: here, Key: key}}, 1, time.Minute)
				}
				return err
			})
		}
	}
	server.Signal(t, syscall.SIGSTOP)
	var all sync.WaitGroup
	for _, call := range calls {
		all.Go(func() {
			if err := call(); !errors.Is(err, stint.ErrAmbiguous) {
				t.Error(err)
			}
		})
	}
	time.Sleep(2 * time.Second)
	server.Signal(t, syscall.SIGCONT)
	all.Wait()
	for _, id := range opened {
		if _, err := patient.Settle(ctx, id, 0); err != nil {
			t.Fatal(err)
		}
	}
	for key, there := range peeks {
		if d, err := there.Decide(ctx, meter.OpPeek, key, 1); err != nil || d.Banned || d.Remaining != 5 {
			t.Errorf("%s: %+v, %v", key, d, err)
		}
	}
}

// TestBanByAnotherClock: whatever the server's clock shows beside that of the process, and when it steps,
// denials are noted.
func TestBanByAnotherClock(t *testing.T) {
	server, clock := redistest.StartClock(t)
	store := open(t, server.URL(), redisstore.Options{Timeout: time.Minute})
	for i, step := range []time.Duration{0, 90 * time.Minute, time.Hour, 5 * time.Second, -time.Minute} {
		clock.Step(t, step)
		for text, banned := range map[string]bool{"5 per day ban 1h": true, "5 per day fixed_window count_denied": false} {
			b, key := bind(t, store, text), fmt.Sprint(text, i)
			for n := range 7 {
				if d, err := b.Decide(ctx, meter.OpTake, key, 1); err != nil || d.Allowed != (n < 5) || d.Banned != (banned && n >= 5) {
					t.Errorf("%s, step %v, request %d: %+v, %v", text, step, n, d, err)
				}
			}
		}
	}
}
