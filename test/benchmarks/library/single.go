package library

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"golang.org/x/time/rate"
)

// plenty is a limit that is never reached, a unit a nanosecond: what is timed
// is the way of what passes. All contenders are held to the same.
const (
	plentyCount  = int64(time.Hour)
	plentyPeriod = time.Hour
)

// begin is where the monotonic clock is read from.
var begin = time.Now()

// single measures the limiter without keys beside the floors and x/time/rate.
func (f *figures) single() error {
	one, err := memstore.NewSingle(stint.New(plentyCount, plentyPeriod), memstore.SingleOptions{})
	if err != nil {
		return err
	}
	coarse, err := memstore.NewSingle(stint.New(plentyCount, plentyPeriod), memstore.SingleOptions{CoarseClock: true})
	if err != nil {
		return err
	}
	defer coarse.Close()
	xtime := rate.NewLimiter(rate.Limit(1e9), int(plentyCount))
	contenders := floors()
	contenders = append(contenders,
		contender{name: "memstore.Single Allow", ours: true, run: func(_, n int) (passed int) {
			for range n {
				if one.Allow() {
					passed++
				}
			}
			return passed
		}},
		contender{name: coarseAllow, ours: true, run: func(_, n int) (passed int) {
			for range n {
				if coarse.Allow() {
					passed++
				}
			}
			return passed
		}},
		contender{name: "memstore.Single Take", ours: true, run: func(_, n int) (passed int) {
			for range n {
				if d, err := one.Take(1); err == nil && d.Allowed {
					passed++
				}
			}
			return passed
		}},
		contender{name: "x/time/rate Allow", run: func(_, n int) (passed int) {
			for range n {
				if xtime.Allow() {
					passed++
				}
			}
			return passed
		}},
	)
	rs, err := f.race(onBoth(contenders))
	if err != nil {
		return err
	}
	f.speeds(rs, clockAndSwap)
	for cores := 1; cores <= twoCores; cores++ {
		floor, _ := rs.of(clockAndSwap, cores)
		if r, ok := rs.of("memstore.Single Allow", cores); ok {
			f.AtMost(1.15, r.ratio(floor), " ×", "single limiter, Allow, beside clock + compare-and-swap, cores: %d", cores)
			f.Doubt(r.doubtful() || floor.doubtful())
		}
	}
	floor, _ := rs.of(clockAndSwap, 1)
	if r, ok := rs.of(coarseAllow, 1); ok {
		f.AtMost(0.5, r.ratio(floor), " ×", "single limiter, Allow, coarse clock, beside clock + compare-and-swap, cores: 1")
	}
	f.noAllocations(rs, "single limiter")
	return nil
}

// onBoth returns every contender on one core and on two.
func onBoth(contenders []contender) []contender {
	var both []contender
	for _, c := range contenders {
		both = append(both, c.on(1), c.on(twoCores))
	}
	return both
}

const (
	coarseAllow  = "memstore.Single Allow, coarse clock"
	clockAndSwap = "clock + compare-and-swap"
)

// floors returns what a decision cannot be made without, as contenders.
func floors() []contender {
	seed := maphash.MakeSeed()
	var word, both atomic.Uint64
	return []contender{
		{name: "clock (time.Since)", run: func(_, n int) int {
			var t int64
			for range n {
				t |= int64(time.Since(begin))
			}
			return alive(n, uint64(t))
		}},
		{name: "hash (maphash.String, 12 bytes)", run: func(_, n int) int {
			var h uint64
			for range n {
				h |= maphash.String(seed, "user:1234567")
			}
			return alive(n, h)
		}},
		{name: "compare-and-swap", run: func(_, n int) int {
			for range n {
				for {
					if old := word.Load(); word.CompareAndSwap(old, old+1) {
						break
					}
				}
			}
			return n
		}},
		{name: clockAndSwap, run: func(_, n int) int {
			for range n {
				now := uint64(time.Since(begin))
				for {
					old := both.Load()
					if both.CompareAndSwap(old, max(old, now)+1) {
						break
					}
				}
			}
			return n
		}},
	}
}

// alive returns n, and keeps what was computed from being optimised away.
func alive(n int, x uint64) int {
	if x == 0 {
		return 0
	}
	return n
}
