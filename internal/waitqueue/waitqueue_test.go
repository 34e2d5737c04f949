package waitqueue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/waitqueue"
)

// A store is a leaky_queue of one unit a second by its definition: a delay that a
// request was given stays its own, and giving back frees a place only while no
// later request has a delay.
type store struct {
	mu   sync.Mutex
	end  time.Time // of what has been charged
	last map[int]stretch
	n    int
}

type stretch struct{ start, end time.Time }

const unit = time.Second

func pace(units int64) time.Duration { return time.Duration(units) * unit }

// charge returns a token and when the request may start.
func (s *store) charge(units int64) (token int, start time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.end.Before(now) {
		s.end = now
	}
	start = s.end
	s.end = start.Add(pace(units))
	s.n++
	s.last[s.n] = stretch{start, s.end}
	return s.n, start
}

func (s *store) settle(token int, cost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, ok := s.last[token]
	delete(s.last, token)
	if now := time.Now(); ok && held.end.Equal(s.end) && s.end.After(now) {
		if s.end = held.start.Add(pace(cost)); s.end.Before(now) {
			s.end = now
		}
	}
}

// A start is a request that started, and what it cost.
type start struct {
	at    time.Time
	units int64
}

// checkPace fails where more started in a stretch than 1 + d/T, counted in
// units: who costs c is followed by the next c units later.
func checkPace(t *testing.T, starts []start) {
	t.Helper()
	slices.SortFunc(starts, func(a, b start) int { return a.at.Compare(b.at) })
	for i := 1; i < len(starts); i++ {
		if gap := starts[i].at.Sub(starts[i-1].at); gap < pace(starts[i-1].units) {
			t.Fatalf("start %d of cost %d, the next after %v", i, starts[i-1].units, gap)
		}
	}
}

// TestLines lets requests come and give up at random, with others between them
// that keep the delay they got. Judged by the starts alone: the pace is held, and
// nothing is left.
func TestLines(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { history(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func history(t *testing.T, random *rand.Rand) {
	s := &store{last: make(map[int]stretch)}
	ls := &waitqueue.Lines[int]{GiveBack: s.settle}
	mostUnits, takers, own := 1+random.Int64N(3), random.IntN(2) == 0, random.IntN(3) == 0
	var mu sync.Mutex
	var starts []start
	var all sync.WaitGroup
	for range 150 {
		units := 1 + random.Int64N(mostUnits)
		if takers && random.IntN(5) == 0 {
			_, at := s.charge(units)
			mu.Lock()
			starts = append(starts, start{at, units})
			mu.Unlock()
			continue
		}
		token, at := s.charge(units)
		p := waitqueue.Place[int]{Start: at, Units: units, Reservation: token, Return: waitqueue.ByLine, Pace: waitqueue.Pace{Period: unit, Count: 1}}
		if own && random.IntN(2) == 0 {
			p.Return = waitqueue.ByWaiter
		}
		later := random.Uint64()
		ctx, leave := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(60*time.Second))))
		all.Go(func() {
			defer leave()
			returns, err := ls.Wait(ctx, "k", p)
			if err == nil {
				mu.Lock()
				starts = append(starts, start{time.Now(), units})
				mu.Unlock()
				if p.Return == waitqueue.ByWaiter && time.Now().Before(at) { // the place that it started in stays charged
					time.Sleep(time.Duration(later % uint64(time.Until(at))))
					s.settle(token, 0)
				}
			} else if returns {
				s.settle(token, 0)
			}
		})
		if random.IntN(4) > 0 {
			synctest.Wait()
		}
		time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second))))
	}
	all.Wait()
	checkPace(t, starts)
	if waiters, keys := ls.Waiting(); waiters != 0 || keys != 0 {
		t.Errorf("%d waiters left in %d lines", waiters, keys)
	}
}

// TestLinesMoveUp has the second of four give up, and a fifth come.
func TestLinesMoveUp(t *testing.T) {
	for name, test := range map[string]struct {
		units  [5]int64
		by     waitqueue.Return
		taken  bool // another request takes a delay before the fourth, and keeps it
		starts string
	}{
		"even":                    {[5]int64{1, 1, 1, 1, 1}, waitqueue.ByLine, false, "0s 1s 2s 3s"},
		"of a greater cost":       {[5]int64{1, 3, 1, 2, 1}, waitqueue.ByLine, false, "0s 1s 2s 4s"},
		"of a smaller cost":       {[5]int64{1, 1, 3, 2, 1}, waitqueue.ByLine, false, "0s 1s 4s 6s"},
		"charged elsewhere too":   {[5]int64{1, 1, 1, 1, 1}, waitqueue.ByWaiter, false, "0s 1s 2s 3s"},
		"not to be given back":    {[5]int64{1, 1, 1, 1, 1}, waitqueue.Kept, false, "0s 1s 2s 3s"},
		"around a taker":          {[5]int64{1, 1, 1, 1, 1}, waitqueue.ByLine, true, "0s 1s 2s 4s"},
		"not across a taker":      {[5]int64{1, 1, 1, 2, 1}, waitqueue.ByLine, true, "0s 1s 4s 6s"},
		"a part is given back":    {[5]int64{1, 1, 1, 3, 1}, waitqueue.ByLine, false, "0s 1s 2s 5s"},
		"a part beside the taker": {[5]int64{1, 2, 1, 1, 1}, waitqueue.ByLine, true, "0s 1s 2s 3s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{last: make(map[int]stretch)}
				ls := &waitqueue.Lines[int]{GiveBack: s.settle}
				began := time.Now()
				leaves, leave := context.WithCancel(t.Context())
				defer leave()
				var all sync.WaitGroup
				var starts [5]time.Duration
				for i, units := range test.units {
					if i == 3 && test.taken {
						s.charge(1)
					}
					if i == 4 {
						time.Sleep(unit / 2)
						leave()
						synctest.Wait()
					}
					token, at := s.charge(units)
					ctx := t.Context()
					if i == 1 {
						ctx = leaves
					}
					all.Go(func() {
						returns, _ := ls.Wait(ctx, "k", waitqueue.Place[int]{Start: at, Units: units, Reservation: token, Return: test.by, Pace: waitqueue.Pace{Period: unit, Count: 1}})
						if starts[i] = time.Since(began); returns {
							s.settle(token, 0)
						}
					})
					synctest.Wait()
				}
				all.Wait()
				if got := fmt.Sprint(starts[0], starts[2], starts[3], starts[4]); got != test.starts {
					t.Errorf("started at %s, want %s", got, test.starts)
				}
			})
		})
	}
}

// TestLinesThousands has 20,000 waiters give up at once, in any order: all of their
// places are free again, the last first, and the lines are empty.
func TestLinesThousands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{last: make(map[int]stretch)}
		ls := &waitqueue.Lines[int]{GiveBack: s.settle}
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		s.charge(1)
		before := s.end
		var all sync.WaitGroup
		for range 20_000 {
			token, at := s.charge(1)
			all.Go(func() {
				_, _ = ls.Wait(ctx, "k", waitqueue.Place[int]{Start: at, Units: 1, Reservation: token, Return: waitqueue.ByLine, Pace: waitqueue.Pace{Period: unit, Count: 1}})
			})
		}
		synctest.Wait()
		leave()
		all.Wait()
		if waiters, keys := ls.Waiting(); waiters != 0 || keys != 0 || !s.end.Equal(before) {
			t.Errorf("%d waiters left in %d lines; the queue ends %v later", waiters, keys, s.end.Sub(before))
		}
	})
}

// TestLinesCross: where places of a faster pace lie within one of a slower pace whose request has left, no two
// requests start at one instant.
func TestLinesCross(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := &waitqueue.Lines[int]{GiveBack: func(int, int64) {}}
		ctx, leave := context.WithCancel(t.Context())
		began, starts := time.Now(), make([]time.Duration, 21)
		var all sync.WaitGroup
		wait := func(ctx context.Context, i int, start time.Duration, units int64, pace time.Duration) {
			all.Go(func() {
				p := waitqueue.Place[int]{Start: began.Add(start), Units: units, Return: waitqueue.ByLine, Pace: waitqueue.Pace{Period: pace, Count: 1}}
				if _, err := ls.Wait(ctx, "k", p); err == nil {
					starts[i] = time.Since(began)
				}
			})
			synctest.Wait()
		}
		wait(ctx, 0, 10*time.Second, 10, 5*time.Second)
		for i := 1; i < len(starts); i++ {
			wait(t.Context(), i, time.Duration(60+i)*time.Second/5, 1, time.Second/5)
		}
		leave()
		all.Wait()
		slices.Sort(starts)
		for i := 2; i < len(starts); i++ {
			if starts[i] == starts[i-1] {
				t.Fatalf("starts at %v", starts)
			}
		}
	})
}
