package redisstore_test

import (
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// ModesClock steps the clock of a server back and forth under stores in modes
// Lease and Async. Steps back add nothing to what passes, in real time, nor do
// they lock a key out for longer than two drains. A step forth is time that
// passes, at most a limit's worth, and ends leases for the server while nodes
// have them in hand. Once the clock is where it was, all that was let through is
// counted, to the unit.
func ModesClock(t *testing.T) {
	const drain = modeBurst * time.Second / modeRate
	const leased = modeBurst / 10 // S
	server, clock := redistest.StartClock(t)
	patient := func(int) redisstore.Options { // no call has a reason to fail, but a machine that is busy
		return redisstore.Options{URL: server.URL(), Timeout: patience}
	}
	f := newFleet(t, patient, "a", "b")
	f.during(func() {})
	f.exact("before")
	for _, step := range []struct {
		name        string
		by          time.Duration
		idle, lasts time.Duration
		more        int64
	}{
		{"a second back", -time.Second, drain, 1700 * time.Millisecond, 0},
		{"a day back", -24 * time.Hour, drain, drain + time.Second, 0},
		{"a day forth", 24 * time.Hour, 0, 2200 * time.Millisecond, modeBurst + leased},
		{"a second forth", time.Second, 0, 1500 * time.Millisecond, modeRate + leased},
	} {
		time.Sleep(step.idle) // buckets are full again
		f.during(func() {
			time.Sleep(300 * time.Millisecond)
			if step.idle > 0 { // a step back may lock a key out for the rest, on a busy machine before it had much
				eventually(f, step.name+": full buckets let little through", func() bool { return f.passed() >= modeRate })
			}
			eventually(f, step.name+": nothing is in hand", func() bool { return f.held() > 0 })
			clock.Step(t, step.by)
			time.Sleep(step.lasts)
			f.decided(step.name)
		})
		f.envelopes(step.name, step.more, modeRate)
	}
	f.exact("the clock where it was")
	if n := f.failed.Load(); n != 0 {
		f.Errorf("%d calls failed: a clock that steps is no reason", n)
	}
}
