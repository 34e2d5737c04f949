package library

import (
	"slices"

	"github.com/stint-dev/stint"
)

const (
	deniedAllow = "Allow, denied"
	deniedTake  = "Take, denied"
	hotAllow    = "Allow, one hot key"
	hotTake     = "Take, one hot key"
	hotMutex    = "mutex + map, one hot key"
	threeAllow  = "Allow, three layers"
	threeTake   = "Take, three layers"
)

// ways measures what else may come of a decision on a thousand keys, each
// beside an Allow that passes under one limit.
func (f *figures) ways() error {
	contenders, err := waysOf(1000)
	if err != nil {
		return err
	}
	rs, err := f.race(onBoth(contenders))
	if err != nil {
		return err
	}
	f.speeds(rs, stintAllow)
	allow, _ := rs.of(stintAllow, 1)
	take, _ := rs.of(stintTake, 1)
	beside := func(name string, base result, promised float64, text string) {
		r, _ := rs.of(name, 1)
		f.AtMost(promised, r.ratio(base), " ×", "%s", text)
	}
	beside(deniedAllow, allow, 1, "denied Allow beside allowed Allow")
	beside(deniedTake, take, 1, "denied Take beside allowed Take")
	beside(threeAllow, allow, 2.2, "Allow of three layers beside one")
	beside(threeTake, take, 2.2, "Take of three layers beside one")
	if two, ok := rs.of(hotAllow, twoCores); ok {
		one, _ := rs.of(hotAllow, 1)
		f.AtMost(1, two.ratio(one), " ×", "one hot key, Allow, ns on two cores beside one")
		f.Doubt(two.doubtful())
	}
	f.noAllocations(rs, "denied, layers, hot key")
	return nil
}

func waysOf(n int) ([]contender, error) {
	one, _, err := newStint(n, plenty())
	if err != nil {
		return nil, err
	}
	three, _, err := newStint(n, plenty(),
		stint.New(60*plentyCount, 60*plentyPeriod), stint.New(plentyCount/60, plentyPeriod/60))
	if err != nil {
		return nil, err
	}
	denied, _, err := newStint(n, stint.PerHour(1))
	if err != nil {
		return nil, err
	}
	plain, err := newMutexMap()
	if err != nil {
		return nil, err
	}
	order := shuffled(n)
	for _, l := range []*stint.Limiter{one, three, denied} {
		fill(allows(l), 0, n)
	}
	hot := repeated("user:1234567")
	return []contender{
		{name: stintAllow, ours: true, run: sweep(order, allows(one))},
		{name: stintTake, ours: true, run: sweep(order, takes(one))},
		{name: deniedAllow, ours: true, run: sweep(order, allows(denied)), denies: true},
		{name: deniedTake, ours: true, run: sweep(order, takes(denied)), denies: true},
		{name: threeAllow, ours: true, run: sweep(order, allows(three))},
		{name: threeTake, ours: true, run: sweep(order, takes(three))},
		{name: hotAllow, ours: true, run: sweep(hot, allows(one))},
		{name: hotTake, ours: true, run: sweep(hot, takes(one))},
		{name: hotMutex, run: sweep(hot, plain)},
	}, nil
}

// repeated returns a key a thousand times, so that a hot key goes through the
// same loop as many keys do.
func repeated(key string) []string { return slices.Repeat([]string{key}, chunk) }
