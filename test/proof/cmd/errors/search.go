package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// burst is units that arrive together, one by one.
type burst struct {
	at    int64 // ns since the epoch
	units int64
}

// bursts are what arrives, in order of time.
type bursts []burst

// String is "10 @ 59s, 3 @ 1m2s"; of many, the first and the last.
func (b bursts) String() string {
	const most = 6
	var parts []string
	for i, one := range b {
		if len(b) > most && i == most/2 {
			parts = append(parts, fmt.Sprintf("… %d more …", len(b)-most))
		}
		if len(b) <= most || i < most/2 || i >= len(b)-most/2 {
			parts = append(parts, fmt.Sprintf("%d @ %v", one.units, time.Duration(one.at)))
		}
	}
	return strings.Join(parts, ", ")
}

// found is the best that a search has seen.
type found struct {
	score    int64
	admitted bursts
}

// search climbs from random arrivals to worse ones.
type search struct {
	limit  stint.Limit
	log    stint.Limit // that would hold all that is admitted
	period int64
	rng    *rand.Rand
	goal   func(*search, bursts) (found, error)
}

func newSearch(l stint.Limit, goal func(*search, bursts) (found, error)) *search {
	return &search{
		limit: l, log: stint.New(4*l.Count(), l.Period()).WithAlgorithm(meter.SlidingLog),
		period: int64(l.Period()), rng: rand.New(rand.NewPCG(1, 2)), goal: goal,
	}
}

const (
	mostBursts = 24
	restarts   = 8
)

// climb takes the given number of steps in all, from a few starts. A step that is
// no worse is taken, so that plateaus are crossed.
func (s *search) climb(steps int) (best found, err error) {
	for range restarts {
		var at bursts
		for range 1 + s.rng.IntN(mostBursts) {
			at = append(at, s.random())
		}
		here, err := s.goal(s, sorted(at))
		if err != nil {
			return best, err
		}
		for range steps / restarts {
			next := s.mutate(at)
			there, err := s.goal(s, next)
			if err != nil {
				return best, err
			}
			if there.score >= here.score {
				at, here = next, there
			}
		}
		if here.score > best.score {
			best = here
		}
	}
	return best, nil
}

func sorted(b bursts) bursts {
	slices.SortFunc(b, func(x, y burst) int { return cmp.Compare(x.at, y.at) })
	return b
}

// random is a burst anywhere in three windows, often at an edge.
func (s *search) random() burst {
	return burst{s.moment(), 1 + s.rng.Int64N(s.limit.Count()+2)}
}

func (s *search) moment() int64 {
	edge := s.period * s.rng.Int64N(4)
	if parts := s.limit.Parts(); parts > 0 && s.rng.IntN(2) == 0 {
		edge = s.period / parts * s.rng.Int64N(3*parts)
	}
	if s.rng.IntN(2) == 0 {
		return s.rng.Int64N(3 * s.period)
	}
	return max(edge+s.rng.Int64N(3)-1, 0)
}

// mutate returns other arrivals, near those given.
func (s *search) mutate(b bursts) bursts {
	b = slices.Clone(b)
	for range 1 + s.rng.IntN(3) {
		switch i := s.rng.IntN(len(b)); s.rng.IntN(6) {
		case 0:
			if len(b) < mostBursts {
				b = append(b, s.random())
			}
		case 1:
			if len(b) > 1 {
				b = slices.Delete(b, i, i+1)
			}
		case 2:
			b[i].units = 1 + s.rng.Int64N(s.limit.Count()+2)
		case 3:
			b[i].at = s.moment()
		case 4: // a little
			b[i].at = max(b[i].at+s.rng.Int64N(s.period/10)-s.period/20, 0)
		case 5:
			b[i].at = max(b[i].at+s.rng.Int64N(5)-2, 0)
		}
	}
	return sorted(b)
}

// play offers arrivals unit by unit to the limit and lets each see what the
// limit says, beside a log of what it has admitted before.
func (s *search) play(b bursts, see func(at int64, d stint.Decision, admitted *key)) (passed bursts, err error) {
	judged, err := newKey(s.limit)
	if err != nil {
		return nil, err
	}
	admitted, err := newKey(s.log)
	if err != nil {
		return nil, err
	}
	for _, one := range b {
		n := int64(0)
		for range one.units {
			d := judged.take(one.at, 1)
			see(one.at, d, admitted)
			if !d.Allowed {
				break
			}
			admitted.admit(one.at, 1)
			n++
		}
		if last := len(passed) - 1; last >= 0 && passed[last].at == one.at {
			passed[last].units += n
		} else if n > 0 {
			passed = append(passed, burst{one.at, n})
		}
	}
	return passed, nil
}

// greatestExcess scores the most units that are admitted in any window.
func greatestExcess(s *search, b bursts) (f found, err error) {
	worst := int64(0)
	passed, err := s.play(b, func(at int64, d stint.Decision, admitted *key) {
		if n := admitted.units(at) + 1; d.Allowed && n > f.score {
			f.score, worst = n, at
		}
	})
	for _, one := range passed {
		if one.at > worst-s.period && one.at <= worst {
			f.admitted = append(f.admitted, one)
		}
	}
	return f, err
}

// longestLate scores by how many ns longer than an exact log of the same
// admissions the limit denies one unit.
func longestLate(s *search, b bursts) (f found, err error) {
	f.admitted, err = s.play(b, func(at int64, d stint.Decision, admitted *key) {
		if d.Allowed {
			return
		}
		wait, exact := int64(d.RetryAfter), int64(0)
		if over := admitted.units(at) + 1 - s.limit.Count(); over > 0 {
			// the log of four times the count has room for one unit more than
			// the exact log would, once that many have aged
			w := admitted.meter.Wait(admitted.words, at, s.log.Count()-s.limit.Count()+1)
			exact = int64(w)
		}
		f.score = max(f.score, wait-exact)
	})
	return f, err
}
