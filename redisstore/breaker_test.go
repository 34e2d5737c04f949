package redisstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-dev/stint/redisstore"
)

// TestBreaker goes through one failure, step by step.
func TestBreaker(t *testing.T) {
	const ms = time.Millisecond
	var b redisstore.Breaker
	may := func(at time.Duration, want, wantAlone bool) {
		t.Helper()
		if ok, alone := b.Enter(at); ok != want || alone != wantAlone {
			t.Errorf("at %v: may %t, alone %t; want %t, %t", at, ok, alone, want, wantAlone)
		}
	}
	for range 2 { // two failures are no reason
		may(0, true, false)
		b.Leave(1*ms, false, false, true)
	}
	may(2*ms, true, false)
	b.Leave(3*ms, false, true, false) // well again
	for range 4 {                     // on their way at once
		may(10*ms, true, false)
	}
	for range 4 {
		b.Leave(35*ms, false, false, true)
	}
	may(36*ms, false, false)
	may(59*ms, false, false)  // half the first pause at least
	may(85*ms, true, true)    // the whole of it at most
	may(85*ms, false, false)  // one at a time
	may(500*ms, false, false) // however long it takes
	b.Leave(500*ms, true, false, true)
	may(549*ms, false, false) // the pause has doubled
	may(600*ms, true, true)
	b.Leave(601*ms, true, false, false) // its caller gave up: the next one probes
	may(601*ms, true, true)
	b.Leave(602*ms, true, true, false)
	for range 2 {
		may(602*ms, true, false)
		b.Leave(603*ms, false, false, true)
	}
	may(603*ms, true, false) // all is forgotten
}

// A flight is a call on its way through a breaker.
type flight struct {
	ends             time.Duration
	alone, good, bad bool
}

// TestBreakerHolds lets a server fail and come back at random, with a caller
// every millisecond: there is never more than one probe, few calls are made in
// vain, and the server is used again within a second of its return.
func TestBreakerHolds(t *testing.T) {
	const ms = time.Millisecond
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var b redisstore.Breaker
		var flights []flight
		var probes, vain int
		up, turns, turned, used := true, time.Duration(0), time.Duration(0), true
		for now := time.Duration(0); now < 30*time.Second; now += ms {
			if now >= turns {
				if up && !used {
					t.Fatalf("seed %d: back at %v and not used by %v", seed, turned, now)
				}
				up, turned, used = !up, now, false
				turns = now + time.Second + time.Duration(rnd.Int64N(int64(3*time.Second)))
				vain = 0
			}
			rest := flights[:0]
			for _, f := range flights {
				if f.ends > now {
					rest = append(rest, f)
					continue
				}
				b.Leave(now, f.alone, f.good, f.bad)
				if f.alone {
					probes--
				}
				used = used || f.good
			}
			flights = rest
			ok, alone := b.Enter(now)
			if !ok {
				continue
			}
			f := flight{ends: now + ms, alone: alone, good: up}
			if !up {
				f.ends, f.bad = now+25*ms, true
				vain++
			}
			if rnd.IntN(20) == 0 { // an impatient caller
				f = flight{ends: now + ms, alone: alone}
			}
			if alone {
				probes++
			}
			if probes > 1 {
				t.Fatalf("seed %d, at %v: %d probes at once", seed, now, probes)
			}
			flights = append(flights, f)
			// Those that were on their way, then one a pause, of 25 ms at least.
			if most := 30 + int((now-turned)/(25*ms)); vain > most {
				t.Fatalf("seed %d: %d calls in vain in %v", seed, vain, now-turned)
			}
			if up && !used && now-turned > time.Second {
				t.Fatalf("seed %d: not used for a second after it was back at %v", seed, turned)
			}
		}
	}
}
