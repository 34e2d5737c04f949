package chaos_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/proof/oracle"
)

// together is how long processes of two forms run at the same time, after each
// that is replaced: an exhausted key has its burst again in a second.
const together = 1200 * time.Millisecond

func restartAll(s *site) {
	s.exhaust()
	s.roll(loose, false)
}

func deployTight(s *site) {
	s.exhaust()
	s.roll(tight, true)
}

func deployLoose(s *site) { s.roll(loose, false) }

// exhaust has all keys full, then exhausted: so the envelope of what follows has no
// burst left that could hide what a form frees.
func (s *site) exhaust() {
	s.resting.Store(true)
	time.Sleep(together)
	s.resting.Store(false)
	time.Sleep(2 * time.Second)
}

// roll stops the processes and starts them again with a form, one after the other.
func (s *site) roll(f form, tightly bool) {
	for _, p := range s.processes {
		s.keepWithout(p)
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			s.Fatal(err)
		}
		if err := p.cmd.Wait(); err != nil {
			s.Errorf("%s did not end well at SIGTERM: %v", p.addr, err)
		}
		p.tight.Store(tightly)
		s.write(p, f)
		s.start(p)
		for end := time.Now().Add(30 * time.Second); s.metric(p, "stint_fallback_total") < 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				s.Fatalf("%s does not answer after it was started again", p.addr)
			}
		}
		time.Sleep(together)
	}
}

// judgeTight holds what the tight form let through in a fault to that form, by
// itself and together with what passed under the loose one. It returns the most
// units above, in parts of a burst.
func (s *site) judgeTight(f *suffered) (worst float64) {
	for rule, l := range tight {
		all, own := s.between(rule, f.from, f.until, false), s.between(rule, f.from, f.until, true)
		over := above(l, own, 100*l.Burst())
		if may := f.allowed(l.Burst()); over > may {
			s.Errorf("%s, rule %s: the tight form let %d units above its envelope through, at most %d are promised", f.name, rule, over, may)
		}
		// What is answered without the store, no form counts.
		lack := withoutRoom(l, all, own)
		if lack > f.without {
			s.Errorf("%s, rule %s: the tight form let units through for which it lacked room for %d, by all that passed since its first; %d were answered without the store",
				f.name, rule, lack, f.without)
		}
		worst = max(worst, float64(over)/float64(l.Burst()), float64(lack)/float64(l.Burst()))
	}
	return worst
}

// withoutRoom returns for how many units a form of a bucket lacked room, at most, in
// what it let through (own), when it counts by its own rule all that passed since it
// met the key: under another form too, even without room, up to twice its drain.
// Each charge counts as early as it may have been made, and not if it may have been
// made later than the decision.
func withoutRoom(l stint.Limit, all, own []oracle.Event) (most int64) {
	met := map[string]int64{}
	for _, e := range own {
		if at, ok := met[e.Key]; !ok || e.End < at {
			met[e.Key] = e.End
		}
	}
	all = slices.SortedFunc(slices.Values(all), func(a, b oracle.Event) int { return int(a.T - b.T) })
	unit := int64(l.Period()) // of a backlog that falls by the limit's count in a nanosecond
	for _, o := range own {
		backlog, last := int64(0), met[o.Key]
		drain := func(t int64) { backlog, last = max(0, backlog-(t-last)*l.Count()), t }
		for _, e := range all {
			if e.Key == o.Key && e.T >= met[o.Key] && e.End < o.T {
				drain(e.T)
				backlog = min(backlog+unit, 2*l.Burst()*unit)
			}
		}
		drain(max(o.End, last))
		most = max(most, (backlog+unit-l.Burst()*unit+unit-1)/unit)
	}
	return most
}

// TestWithoutRoom asks the judge about what passes under 30 a second with a burst of
// 30, after others have passed at once under another form.
func TestWithoutRoom(t *testing.T) {
	const second = int64(time.Second)
	at := func(t int64) oracle.Event { return oracle.Event{T: t, End: t, Key: "a", Cost: 1, Allowed: true} }
	for _, c := range []struct {
		others int
		then   int64 // when the form lets one more through
		want   int64
	}{
		{others: 28, then: 2, want: 0},
		{others: 29, then: 2, want: 1},
		{others: 29, then: second, want: 0},
		{others: 200, then: second + 1, want: 1}, // the debt is cut at 60
		{others: 200, then: second * 11 / 10, want: 0},
	} {
		own := []oracle.Event{at(0), at(c.then)}
		all := slices.Clone(own)
		for range c.others {
			all = append(all, at(1))
		}
		if got := max(0, withoutRoom(tight["team"], all, own)); got != c.want {
			t.Errorf("%d others, then one at %v: lacks %d, want %d", c.others, time.Duration(c.then), got, c.want)
		}
	}
}
