package observe

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
)

// A verdict is what one rule said to one request.
type verdict uint8

const (
	allowed      verdict = iota // the rule let it pass; another may have denied it
	denied                      // a limit of the rule was used up
	blocked                     // the rule never lets it pass: a block, or its key was missing
	shadowDenied                // the rule would have denied it, but is in shadow
	verdicts     = iota
)

var verdictNames = [verdicts]string{"allowed", "denied", "blocked", "shadow_denied"}

// A reason is why no decision could be made.
type reason uint8

const (
	badRequest reason = iota // the request was at fault
	canceled                 // the caller has gone, or its deadline has passed
	storeError               // the store failed, and the rules have no word for that
	overload                 // too much else was in hand: it was refused at once
	reasons    = iota
)

var reasonNames = [reasons]string{"request", "canceled", "store", "overload"}

// fallbacks are the words for what decided in place of the store.
var fallbacks = [...]policy.Failure{policy.FailLocal, policy.FailOpen, policy.FailClosed}

// A door is one way by which requests come in, with its counters.
type door struct {
	name        string
	took        prometheus.Observer
	denied      atomic.Uint64 // requests
	storeErrors atomic.Uint64
	forgotten   atomic.Uint64 // limits of callers
	failed      [reasons]atomic.Uint64
	// rules has the counters of every rule that decided here. The map is
	// replaced as a whole, under the Observer's lock, so that finding them
	// takes no lock.
	rules atomic.Pointer[map[string]*tally]
}

// A tally is the counters of one rule at one door.
type tally struct {
	said     [verdicts]atomic.Uint64
	fellBack [len(fallbacks) + 1]atomic.Uint64 // by policy.Failure
}

// unmatched is the name under which requests are counted that no rule matched.
// No rule has it.
const unmatched = ""

// Decided counts one decision, once for each rule that matched, and logs the
// rules that denied. A result of a peek is no decision.
func (o *Observer) Decided(name string, r *policy.Result, q Request) {
	d := o.door(name)
	d.took.Observe(q.Took.Seconds())
	if !r.Decision.Allowed {
		d.denied.Add(1)
	}
	if o.spans != nil {
		o.spans(r, q)
	}
	if r.StoreError != nil {
		d.storeErrors.Add(1)
		o.log.storeFailed(name, r.StoreError)
	}
	if o.board != nil {
		o.board.Decided(r)
	}
	if o.warner != nil {
		o.warner.Decided(r)
	}
	if len(r.Rules) == 0 {
		o.tally(d, unmatched).said[allowed].Add(1)
	}
	for from := 0; from < len(r.Rules); {
		at, past := oneRule(r.Rules, from)
		e := &r.Rules[at]
		t, v := o.tally(d, e.Rule), verdictOf(e)
		t.said[v].Add(1)
		if e.Failed != policy.NotFailed && int(e.Failed) < len(t.fellBack) {
			t.fellBack[e.Failed].Add(1)
		}
		if v != allowed && e.Failed != policy.FailClosed {
			o.log.denied(name, r, at, &q)
		}
		from = past
	}
}

// oneRule returns which of the entries of the rule at from speaks for it, the
// first that denied if one did, and where the next rule's begin.
func oneRule(entries []policy.RuleResult, from int) (at, past int) {
	at = from
	for past = from; past < len(entries) && entries[past].Rule == entries[from].Rule; past++ {
		if entries[past].Denied && !entries[at].Denied {
			at = past
		}
	}
	return at, past
}

func verdictOf(e *policy.RuleResult) verdict {
	switch {
	case !e.Denied:
		return allowed
	case e.Shadow:
		return shadowDenied
	case e.Action != "":
		return blocked
	}
	return denied
}

// Forgot counts a limit that a caller gave and that made room for another.
func (o *Observer) Forgot(name string) { o.door(name).forgotten.Add(1) }

// Failed counts a request that no decision could be made on, by the kind of the
// error, and logs it if it is the store's.
func (o *Observer) Failed(name string, err error) {
	d, why := o.door(name), reasonOf(err)
	d.failed[why].Add(1)
	if why == storeError {
		d.storeErrors.Add(1)
		o.log.storeFailed(name, err)
	}
}

// Overloaded counts a request that was refused at once, undecided, because too
// much else was in hand.
func (o *Observer) Overloaded(name string) { o.door(name).failed[overload].Add(1) }

func reasonOf(err error) reason {
	for _, theirs := range []error{policy.ErrRequest, stint.ErrCost, stint.ErrLayers, stint.ErrReservation} {
		if errors.Is(err, theirs) {
			return badRequest
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return canceled
	}
	return storeError
}

// door returns the door of a name. There are as many as the program has.
func (o *Observer) door(name string) *door {
	for _, d := range *o.doors.Load() {
		if d.name == name {
			return d
		}
	}
	return o.newDoor(name)
}

func (o *Observer) newDoor(name string) *door {
	o.mu.Lock()
	defer o.mu.Unlock()
	old := *o.doors.Load()
	for _, d := range old {
		if d.name == name {
			return d
		}
	}
	d := &door{name: name, took: o.took.WithLabelValues(name)}
	d.rules.Store(new(map[string]*tally))
	doors := append(old[:len(old):len(old)], d)
	o.doors.Store(&doors)
	return d
}

// tally returns the counters of a rule.
func (o *Observer) tally(d *door, rule string) *tally {
	if t := (*d.rules.Load())[rule]; t != nil {
		return t
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	old := *d.rules.Load()
	if t := old[rule]; t != nil {
		return t
	}
	rules := make(map[string]*tally, len(old)+1)
	maps.Copy(rules, old)
	t := new(tally)
	rules[rule] = t
	d.rules.Store(&rules)
	return t
}

// Requests are how many were decided, at all doors together.
type Requests struct{ Allowed, Denied uint64 }

// Requests returns how many requests passed and were denied since the start. Where
// several questions are decided together, they are one.
func (o *Observer) Requests() (all Requests) {
	for _, d := range *o.doors.Load() {
		denied := d.denied.Load() // before the sum: a request is in that first
		var m dto.Metric
		if took, ok := d.took.(prometheus.Metric); ok && took.Write(&m) == nil {
			all.Allowed += m.GetHistogram().GetSampleCount() - denied
		}
		all.Denied += denied
	}
	return all
}

// Said is what a rule said, at all doors together.
type Said struct{ Allowed, Denied, Blocked, ShadowDenied uint64 }

// Said returns what every rule has said since it has its name, "" for requests
// that no rule matched.
func (o *Observer) Said() map[string]Said {
	most := 0
	for _, d := range *o.doors.Load() {
		most = max(most, len(*d.rules.Load()))
	}
	all := make(map[string]Said, most)
	for _, d := range *o.doors.Load() {
		for rule, t := range *d.rules.Load() {
			s := all[rule]
			s.Allowed += t.said[allowed].Load()
			s.Denied += t.said[denied].Load()
			s.Blocked += t.said[blocked].Load()
			s.ShadowDenied += t.said[shadowDenied].Load()
			all[rule] = s
		}
	}
	return all
}

// Rules ends the series of all rules but the named: call it after each reload
// that was taken, or names that no file has any more stay until the end. A
// request that was on its way under a rule that is gone may bring back its
// series, from 0, until the next call.
func (o *Observer) Rules(names []string) {
	stay := make(map[string]bool, len(names)+1)
	stay[unmatched] = true
	for _, name := range names {
		stay[name] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range *o.doors.Load() {
		rules := maps.Clone(*d.rules.Load())
		maps.DeleteFunc(rules, func(name string, _ *tally) bool { return !stay[name] })
		d.rules.Store(&rules)
	}
}
