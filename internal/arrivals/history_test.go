package arrivals_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/arrivals"
)

// Counts are a store: how many units are free at each place. Time gives none back.
type counts struct {
	sync.Mutex
	free map[string]int64
}

// A request waits for units of counts.
type request struct {
	arrivals.Waiter
	counts       *counts
	needs        []arrivals.Part
	leave        context.CancelFunc
	passed, gone bool
}

// lacks returns a bit for each part that has no room for more[part] units more.
func (r *request) lacks(more []int64) (lacks uint64) {
	for i, p := range r.needs {
		if r.counts.free[p.At.Name] < p.Cost+more[i] {
			lacks |= 1 << uint(i)
		}
	}
	return lacks
}

func (r *request) Take(_ context.Context, later time.Duration, _ uint64) (arrivals.Answer, error) {
	if later > 0 {
		return arrivals.Answer{Again: later}, nil
	}
	r.counts.Lock()
	defer r.counts.Unlock()
	lacks := r.lacks(make([]int64, len(r.needs)))
	if lacks != 0 {
		return arrivals.Answer{Again: arrivals.Unknown, Lacks: lacks}, nil
	}
	for _, p := range r.needs {
		r.counts.free[p.At.Name] -= p.Cost
	}
	r.passed = true
	return arrivals.Answer{Passes: true}, nil
}

func (r *request) Look(_ context.Context, part int) (arrivals.Answer, error) {
	r.counts.Lock()
	defer r.counts.Unlock()
	return arrivals.Answer{Passes: r.lacks(make([]int64, len(r.needs)))>>uint(part)&1 == 0, Again: arrivals.Unknown}, nil
}

func (r *request) With(_ context.Context, more []int64) (uint64, time.Duration, error) {
	r.counts.Lock()
	defer r.counts.Unlock()
	return r.lacks(more), arrivals.Unknown, nil
}

func (r *request) Ahead(context.Context) error     { return nil }
func (r *request) Refill(int, time.Duration) int64 { return 0 }

// TestNobodyIdles: requests come, leave and give back room at the same time. In the end, a request that
// has room waits only if an earlier one without room waits at one of its places.
func TestNobodyIdles(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { history(t, rand.New(rand.NewPCG(seed, 1))) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func history(t *testing.T, rnd *rand.Rand) {
	lines := &arrivals.Lines{Owner: owner{}}
	c := &counts{free: map[string]int64{}}
	names := []string{"a", "b", "c", "d"}[:1+rnd.IntN(4)]
	var waiting []*request
	var all sync.WaitGroup
	for range 60 {
		for range rnd.IntN(4) { // at once
			switch rnd.IntN(5) {
			case 0, 1:
				r := &request{counts: c}
				for _, name := range names {
					if p := part(lines, name); rnd.IntN(2) == 0 {
						p.Cost += rnd.Int64N(3)
						r.needs = append(r.needs, p)
					}
				}
				if len(r.needs) == 0 {
					continue
				}
				ctx, leave := context.WithCancel(t.Context())
				r.leave = leave
				c.Lock()
				lacks := r.lacks(make([]int64, len(r.needs)))
				c.Unlock()
				if lacks == 0 {
					lacks = arrivals.All
				}
				r.Join(r, lacks, r.needs...)
				waiting = append(waiting, r)
				all.Go(func() { _, _ = r.Drive(ctx, false) })
			case 2:
				if len(waiting) > 0 {
					r := waiting[rnd.IntN(len(waiting))]
					r.gone = true
					r.leave()
				}
			default:
				name := names[rnd.IntN(len(names))]
				units := 1 + rnd.Int64N(3)
				all.Go(func() {
					c.Lock()
					c.free[name] += units
					c.Unlock()
					lines.RoomMade(part(lines, name).At)
				})
			}
		}
		if rnd.IntN(3) == 0 {
			synctest.Wait()
		}
		if rnd.IntN(3) == 0 {
			time.Sleep(time.Duration(rnd.Int64N(int64(3 * time.Second))))
		}
	}
	time.Sleep(time.Hour) // what anybody holds back is free
	synctest.Wait()
	lack := map[string]bool{} // of those before
	for i, r := range waiting {
		if r.passed || r.gone {
			continue
		}
		lacks := r.lacks(make([]int64, len(r.needs)))
		if lacks == 0 && !slices.ContainsFunc(r.needs, func(p arrivals.Part) bool { return lack[p.At.Name] }) {
			t.Errorf("the %d. has room for %v of %v and waits", i, r.needs, c.free)
		}
		for i, p := range r.needs {
			lack[p.At.Name] = lack[p.At.Name] || lacks>>uint(i)&1 != 0
		}
	}
	for _, r := range waiting {
		r.leave()
	}
	all.Wait()
}
