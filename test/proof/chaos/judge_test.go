package chaos_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/test/proof/model"
	"github.com/stint-dev/stint/test/proof/oracle"
)

// A suffered is a fault that has been, from a while before it until all is as
// before.
type suffered struct {
	fault
	from, until time.Time
	again       time.Duration // from its end until every process is decided for by the store
	without     int64         // requests that were answered without the store, a rule each
}

// suffer does one fault, and waits until all is as before.
func (s *site) suffer(f fault) suffered {
	before := s.without()
	one := suffered{fault: f, from: time.Now()}
	time.Sleep(300 * time.Millisecond)
	if f.begin != nil {
		f.begin(s)
	}
	time.Sleep(f.lasts)
	if f.end != nil {
		f.end(s)
	}
	ended := time.Now()
	for !s.decided() {
		if time.Since(ended) > 2*time.Minute {
			s.Fatalf("%s: after %v requests are still answered without the store", f.name, time.Since(ended))
		}
	}
	one.again = time.Since(ended)
	s.settled()
	s.cluster.NodeTimeout(s, redistest.Patient)
	time.Sleep(300 * time.Millisecond)
	one.until = time.Now()
	for i, n := range s.without() {
		one.without += n - before[i]
	}
	return one
}

// keepWithout notes how many requests a process has answered without the store,
// which ends with it.
func (s *site) keepWithout(p *process) {
	p.without += int64(max(0, s.metric(p, "stint_fallback_total")))
}

// without returns how many requests each process has answered without the store.
func (s *site) without() (counts []int64) {
	for _, p := range s.processes {
		n := s.metric(p, "stint_fallback_total")
		for end := time.Now().Add(30 * time.Second); n < 0; n = s.metric(p, "stint_fallback_total") {
			if time.Now().After(end) {
				s.Fatalf("%s does not say how often it answered without the store", p.addr)
			}
			time.Sleep(20 * time.Millisecond)
		}
		counts = append(counts, p.without+int64(n))
	}
	return counts
}

// allowed returns how many units above the envelope a fault may let pass. A machine
// that is busy is a fault as well: what was answered without the store may add up
// with what the store let pass, up to a limit.
func (f *suffered) allowed(burst int64) int64 {
	return max(f.promised*burst, min(burst, f.without))
}

// decided reports whether for a moment nearly no request was answered without the
// store: on a machine that is busy some always are.
func (s *site) decided() bool {
	count := func() (sum float64) {
		for _, p := range s.processes {
			sum += s.metric(p, "stint_fallback_total") + 1e9*s.metric(p, "stint_store_breakers_open")
		}
		return sum
	}
	before, asked := count(), s.asked.Load()
	time.Sleep(250 * time.Millisecond)
	after := count()
	return after-before <= float64(s.asked.Load()-asked)/20 && after < 1e9 && after >= 0
}

// between returns what was let through under a rule by calls that lie in a stretch,
// for the oracle.
func (s *site) between(rule string, from, until time.Time) (all []oracle.Event) {
	for _, e := range s.events {
		if e.begun.Before(from) || e.ended.After(until) {
			continue
		}
		for _, l := range e.limits {
			if l[0] == rule {
				all = append(all, oracle.Event{T: e.begun.UnixNano(), End: e.ended.UnixNano(), Key: l[1], Cost: 1, Allowed: true})
			}
		}
	}
	return all
}

// deniedBelow returns how many requests were denied in a stretch of those who ask
// for far less than they may have.
func (s *site) deniedBelow(from, until time.Time) (n int) {
	for _, e := range s.unjust {
		if e.begun.After(from) && e.ended.Before(until) {
			n++
		}
	}
	return n
}

func specOf(l stint.Limit) model.Spec {
	return model.Spec{Kind: l.Algorithm().String(), Count: l.Count(), Period: int64(l.Period()), Burst: l.Burst(), Debt: l.Debt()}
}

// above returns by how many units a history is above the envelope, at most.
func above(l stint.Limit, events []oracle.Event, most int64) int64 {
	low, high := int64(-1), most // above low, not above high
	for low+1 < high {
		if mid := (low + high) / 2; len(oracle.Check(specOf(l), events, mid)) > 0 {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// judge prints what passed in each fault beside what is promised, and holds each,
// and all of them together, to that.
func (s *site) judge(done []suffered, seed uint64) {
	var report strings.Builder
	fmt.Fprintf(&report, "\nSeed %d. %d requests to %d processes: %d let through, %d denied, %d without an answer.\n\n",
		seed, s.asked.Load(), len(s.processes), len(s.events), s.refused.Load(), s.unanswered.Load())
	report.WriteString("Above the envelope: the most units of a key in any stretch, in parts of its burst. Denied far below the limit: of clients who ask for a tenth of it.\n\n")
	report.WriteString("| fault | passed | above the envelope | promised | denied far below the limit | without the store | the store decides again after |\n|---|---:|---:|---:|---:|---:|---:|\n")
	outside := int64(0) // requests that were answered without the store between faults
	for _, n := range s.without() {
		outside += n
	}
	for _, f := range done {
		worst, passed := 0.0, 0
		for rule, l := range loose {
			events := s.between(rule, f.from, f.until)
			passed += len(events)
			over := above(l, events, 100*l.Burst())
			worst = max(worst, float64(over)/float64(l.Burst()))
			if may := f.allowed(l.Burst()); over > may {
				s.Errorf("%s, rule %s: %d units above the envelope, at most %d are promised", f.name, rule, over, may)
			}
		}
		if passed == 0 {
			s.Errorf("%s: nothing was let through: that was no trial", f.name)
		}
		outside -= f.without
		wrong := s.deniedBelow(f.from, f.until)
		if f.begin == nil && f.without == 0 && wrong > 0 {
			s.Errorf("%s: %d requests were denied of clients who ask for a tenth of their limit", f.name, wrong)
		}
		fmt.Fprintf(&report, "| %s | %d | %.2f | %d | %d | %d | %v |\n", f.name, passed, worst, f.promised, wrong, f.without, f.again.Round(time.Millisecond))
	}
	for rule, l := range loose {
		may := min(l.Burst(), outside)
		for _, f := range done {
			may += f.allowed(l.Burst())
		}
		if over := above(l, s.between(rule, time.Time{}, time.Now()), 1000*l.Burst()); over > may {
			s.Errorf("rule %s, all of it: %d units above the envelope, at most %d are promised", rule, over, may)
		}
	}
	fmt.Print(report.String())
}
