package redisstore_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// An on is a server, the way to it, and who asks it.
type on struct {
	s *redistest.Server
	p *redistest.Proxy
	r *trial
}

func signalled(s syscall.Signal) func(testing.TB, on) {
	return func(t testing.TB, o on) { o.s.Signal(t, s) }
}

// A suffering is a fault: how it begins and ends, and whether the server forgets.
type suffering struct {
	name       string
	begin, end func(testing.TB, on)
	lasts      time.Duration
	lossy      bool
	enough     func(on) bool // to be a trial, nil for always
}

func (f suffering) trial(t *testing.T) {
	long := f.lasts > 10*time.Second // so that connections are given up
	if long {
		need.Time(t)
		t.Parallel() // it waits more than it works
	}
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	r := newTrial(t, redisstore.Options{URL: p.URL()})
	o := on{s, p, r}
	if r.crowded = long; long {
		r.pace = 20 * time.Millisecond
	}
	f.begin(t, o)
	r.during(f.lasts, 200)
	for begun := time.Now(); f.enough != nil && !f.enough(o); { // a busy machine makes few calls in time
		if time.Since(begun) > patience {
			t.Fatal("too little happened")
		}
		r.during(f.lasts, 200)
	}
	f.end(t, o)
	r.recovered()
	r.judge(f.lossy)
}

// TestFaults makes a server or the way to it suffer, under load. Whatever it is:
// each call is answered, in time; the server counts each at most once, and those
// that passed without it afterwards; no more passes than is said; and soon after,
// Redis answers again.
func TestFaults(t *testing.T) {
	set := func(f redistest.Fault) func(testing.TB, on) { return func(_ testing.TB, o on) { o.p.Set(f) } }
	cli := func(args ...string) func(testing.TB, on) { return func(t testing.TB, o on) { o.s.CLI(t, args...) } }
	well := set(redistest.Fault{})
	half := 500 * time.Millisecond
	stop, resets := func() {}, int64(0)
	reset := func(t testing.TB, o on) { // all connections, each time after some calls were answered
		answered := int64(0)
		stop = Load(t, 1, 30*time.Millisecond, func(int) {
			if now := o.r.witness.answered.Load(); now >= answered+20 {
				answered = now
				o.p.Reset()
				atomic.AddInt64(&resets, 1)
			}
		})
	}
	for _, f := range []suffering{
		{"kill and restart empty", func(_ testing.TB, o on) { o.s.Kill() }, func(t testing.TB, o on) { o.s.Restart(t) }, half, true, nil},
		{"stall", signalled(syscall.SIGSTOP), signalled(syscall.SIGCONT), 1500 * time.Millisecond, false, nil},
		{"long stall", signalled(syscall.SIGSTOP), signalled(syscall.SIGCONT), lasting(30 * time.Second), false, nil},
		{"stall on the way", set(redistest.Fault{Stall: true}), well, 1500 * time.Millisecond, false, nil},
		{"connections refused", func(_ testing.TB, o on) { o.p.Set(redistest.Fault{Refuse: true}); o.p.Reset() }, well, half, false, nil},
		{"replies cut", set(redistest.Fault{CutEvery: 5}), well, half, false, func(o on) bool { return o.p.Cuts() >= 10 }},
		{"connections reset", reset, func(testing.TB, on) { stop() }, lasting(time.Second), false, func(on) bool { return atomic.LoadInt64(&resets) >= 10 }},
		{"10 ms", set(redistest.Fault{Delay: 10 * time.Millisecond}), well, half, false, nil},
		{"100 ms", set(redistest.Fault{Delay: 100 * time.Millisecond}), well, half, false, nil},
		{"5 s", set(redistest.Fault{Delay: 5 * time.Second}), well, half, false, nil},
		{"full", cli("config", "set", "maxmemory", "1"), cli("config", "set", "maxmemory", "0"), half, false, nil},
		{"a replica", cli("replicaof", "127.0.0.1", "1"), cli("replicaof", "no", "one"), half, false, nil},
		{"scripts gone", cli("script", "flush"), well, half, false, nil},
		{"writers paused", cli("client", "pause", fmt.Sprint(half.Milliseconds()), "write"), well, half, false, nil},
	} {
		t.Run(f.name, f.trial)
	}
}
