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

// A reason says why no decision was made.
type reason uint8

const (
	badRequest reason = iota // the request was wrong
	canceled                 // the caller has gone, or its deadline has passed
	storeError               // the store failed, and the rules do not say what to do then
	overload                 // the request was refused at once, since there were too many
	notGiven                 // a rule reads an attribute that the interface cannot give
	noRules                  // there are no rules yet
	reasons    = iota
)

var reasonNames = [reasons]string{"request", "canceled", "store", "overload", "attribute", "rules"}

// verdicts are the verdicts that a rule can return.
var verdicts = [...]policy.Verdict{policy.VerdictAllowed, policy.VerdictDenied, policy.VerdictBlocked, policy.VerdictShadowDenied}

// fallbacks are the names of what decided in place of the store.
var fallbacks = [...]policy.Failure{policy.FailLocal, policy.FailOpen, policy.FailClosed}

// An entrypoint is one way in which requests come in, with its counters.
type entrypoint struct {
	name        string
	took        prometheus.Observer
	allowed     atomic.Uint64 // requests
	denied      atomic.Uint64 // requests
	storeErrors atomic.Uint64
	forgotten   atomic.Uint64 // limits of callers that made room
	failed      [reasons]atomic.Uint64
	// rules has the counters of every rule that decided here. The map is replaced as a whole, under
	// the Observer's lock, so that reading it takes no lock.
	rules atomic.Pointer[map[string]*tally]
}

// A tally is the counters of one rule at one entrypoint.
type tally struct {
	said     [len(verdicts)]atomic.Uint64
	fellBack [len(fallbacks) + 1]atomic.Uint64 // by policy.Failure
	settled  atomic.Uint64                     // units that responses have cost
}

// unmatched is the name under which requests are counted that no rule matched. No rule can have it.
const unmatched = ""

// Decided counts one decision, once for each rule that matched, and logs the rules that denied. The
// result of a peek is not counted.
func (o *Observer) Decided(name string, r *policy.Result, q Request) {
	d := o.entrypoint(name)
	d.took.Observe(q.Took.Seconds())
	if r.Decision.Allowed {
		d.allowed.Add(1)
	} else {
		d.denied.Add(1)
	}
	if o.spans != nil {
		o.spans(r, q)
	}
	if r.StoreError != nil {
		d.storeErrors.Add(1)
		o.log.storeFailed(name, r, r.StoreError)
	} else {
		o.log.storeDecided(r, o.storeIsOpen)
	}
	if o.topKeys != nil {
		o.topKeys.Decided(r)
	}
	if o.warner != nil {
		o.warner.Decided(r)
	}
	if len(r.Rules) == 0 {
		o.tally(d, unmatched).said[policy.VerdictAllowed].Add(1)
	}
	for i, e := range r.ByRule {
		t, v := o.tally(d, e.Rule), e.Verdict()
		t.said[v].Add(1)
		if e.Failed != policy.NotFailed && int(e.Failed) < len(t.fellBack) {
			t.fellBack[e.Failed].Add(1)
		}
		if v != policy.VerdictAllowed && e.Failed != policy.FailClosed {
			o.log.denied(name, r, i, &q)
		}
	}
}

// storeIsOpen reports whether calls are kept from a server of the shared store.
func (o *Observer) storeIsOpen() bool {
	read := o.shared.Load()
	return read != nil && (*read)().Store.Open > 0
}

// Settled counts what a response has cost, or a reservation was settled at, and records which keys it has brought near a limit.
func (o *Observer) Settled(name string, r *policy.Result) {
	d := o.entrypoint(name)
	for _, e := range r.ByRule {
		o.tally(d, e.Rule).settled.Add(uint64(e.Cost))
	}
	if o.topKeys != nil {
		o.topKeys.Settled(r)
	}
	if o.warner != nil {
		o.warner.Decided(r)
	}
}

// Counts returns how many requests were allowed and denied at all entrypoints, and for how many no
// decision was made.
func (o *Observer) Counts() (allowed, denied, undecided uint64) {
	for _, d := range *o.entrypoints.Load() {
		allowed += d.allowed.Load()
		denied += d.denied.Load()
		for i := range d.failed {
			undecided += d.failed[i].Load()
		}
	}
	return allowed, denied, undecided
}

// Forgot counts a limit of a caller that was dropped to make room for another caller's limit.
func (o *Observer) Forgot(name string) { o.entrypoint(name).forgotten.Add(1) }

// Failed counts a request for which no decision could be made, by the reason in the error. It logs
// the first failure with each reason in a period.
func (o *Observer) Failed(name string, err error) {
	d, why := o.entrypoint(name), reasonOf(err)
	d.failed[why].Add(1)
	switch {
	case errors.Is(err, stint.ErrInFlight):
		o.log.cannot(name, endUnknown, err)
	case why == notGiven:
		o.log.cannot(name, attributeUnknown, err)
	case why == noRules:
		o.log.cannot(name, notReady, err)
	case why == badRequest:
		o.log.requestRefused(name, err)
	case why == storeError:
		d.storeErrors.Add(1)
		o.log.storeFailed(name, nil, err)
	}
}

// Overloaded counts a request that was refused at once, without a decision, because there were too
// many.
func (o *Observer) Overloaded(name string) { o.entrypoint(name).failed[overload].Add(1) }

func reasonOf(err error) reason {
	if _, lacks := errors.AsType[*policy.NotGivenError](err); lacks {
		return notGiven
	}
	if errors.Is(err, policy.ErrNotReady) {
		return noRules
	}
	for _, theirs := range []error{policy.ErrRequest, stint.ErrCost, stint.ErrLayers, stint.ErrReservation, stint.ErrInFlight} {
		if errors.Is(err, theirs) {
			return badRequest
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return canceled
	}
	return storeError
}

// entrypoint returns the entrypoint with a name. Their number is fixed by the program.
func (o *Observer) entrypoint(name string) *entrypoint {
	for _, d := range *o.entrypoints.Load() {
		if d.name == name {
			return d
		}
	}
	return o.newEntrypoint(name)
}

func (o *Observer) newEntrypoint(name string) *entrypoint {
	o.mu.Lock()
	defer o.mu.Unlock()
	old := *o.entrypoints.Load()
	for _, d := range old {
		if d.name == name {
			return d
		}
	}
	d := &entrypoint{name: name, took: o.took.WithLabelValues(name)}
	d.rules.Store(new(map[string]*tally))
	entrypoints := append(old[:len(old):len(old)], d)
	o.entrypoints.Store(&entrypoints)
	return d
}

// tally returns the counters of a rule.
func (o *Observer) tally(d *entrypoint, rule string) *tally {
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

// Requests is how many requests were allowed and denied, at all entrypoints together.
type Requests struct{ Allowed, Denied uint64 }

// Requests returns how many requests passed and were denied since the start. Requests that are
// decided together count as one.
func (o *Observer) Requests() (all Requests) {
	for _, d := range *o.entrypoints.Load() {
		denied := d.denied.Load() // before the sum, since a request is in the sum first
		var m dto.Metric
		if took, ok := d.took.(prometheus.Metric); ok && took.Write(&m) == nil {
			all.Allowed += m.GetHistogram().GetSampleCount() - denied
		}
		all.Denied += denied
	}
	return all
}

// RuleCounts is how often a rule returned each verdict, at all entrypoints together.
type RuleCounts struct{ Allowed, Denied, Blocked, ShadowDenied uint64 }

// CountsByRule returns the counts of every rule since it exists, and under "" those of requests
// that no rule matched.
func (o *Observer) CountsByRule() map[string]RuleCounts {
	most := 0
	for _, d := range *o.entrypoints.Load() {
		most = max(most, len(*d.rules.Load()))
	}
	all := make(map[string]RuleCounts, most)
	for _, d := range *o.entrypoints.Load() {
		for rule, t := range *d.rules.Load() {
			s := all[rule]
			s.Allowed += t.said[policy.VerdictAllowed].Load()
			s.Denied += t.said[policy.VerdictDenied].Load()
			s.Blocked += t.said[policy.VerdictBlocked].Load()
			s.ShadowDenied += t.said[policy.VerdictShadowDenied].Load()
			all[rule] = s
		}
	}
	return all
}

// Rules removes the series of all rules but the named ones. Call it after each successful reload,
// or series of removed rules stay until the end. A request that is being decided by a removed rule
// may bring its series back, from 0, until the next call.
func (o *Observer) Rules(names []string) {
	stay := make(map[string]bool, len(names)+1)
	stay[unmatched] = true
	for _, name := range names {
		stay[name] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range *o.entrypoints.Load() {
		rules := maps.Clone(*d.rules.Load())
		maps.DeleteFunc(rules, func(name string, _ *tally) bool { return !stay[name] })
		d.rules.Store(&rules)
	}
	if o.warner != nil {
		o.warner.Keep(stay)
	}
}
