package rehearse

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/simulate"
)

// Options say what is rehearsed. Live, After and Recording must be given.
type Options struct {
	// Live is the policy in force, of which the overrides of customers and the
	// secret are taken, and its rules if Before is nil.
	Live *policy.Policy
	// Before are the rules that After is compared with. The default value is
	// those of Live.
	Before *policy.Rules
	// After are the other rules.
	After *policy.Rules
	// Recording is the requests.
	Recording *Recording
	// Unsure says what is known to be missing from the recording, for the report.
	Unsure []string
	// Notes say what else is known of the recording, for the report.
	Notes []string
	// Unread is how many requests the recording lacks because they could not be read.
	// Each counts as one that a rule matches and that is newly denied.
	Unread int64
	// WarmUp is how long requests are not counted at first. The default value,
	// 0, is as long as the slowest limit remembers, but at most half of the
	// recording; below 0 is none.
	WarmUp time.Duration
	// Fresh says that the store was empty when the recorder was made. Where
	// the recording is whole, nothing is unknown then, and the default of WarmUp
	// is none.
	Fresh bool
	// Checkpoint is what keys had used at a moment after which requests were
	// recorded; those before are left out. It is used where WarmUp is 0 and
	// Fresh does not make it needless. The default, nil, is none.
	Checkpoint *Checkpoint
	// Names shows keys in clear. The default value is their hashes.
	Names bool
	// Top is how many keys are listed. The default value is 20.
	Top int
	// Pause, if set, is called every few hundred requests, to leave the
	// processor to others.
	Pause func()
}

// ErrEmpty is for a recording without requests.
var ErrEmpty = errors.New("nothing is recorded yet: rules are tried on requests that have come")

// columns is how many columns a timeline has at most.
const columns = 60

// Run rehearses. The error is [ErrEmpty], that of ctx, or of rules that a store
// cannot hold.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Before == nil {
		o.Before = o.Live.Rules()
	}
	if o.Top <= 0 {
		o.Top = 20
	}
	if o.Recording.Len() == 0 {
		return nil, ErrEmpty
	}
	r, err := newRun(&o)
	if err != nil {
		return nil, err
	}
	defer r.close()
	batch := make([]Request, 0, batchSize)
	play := func() error {
		if o.Pause != nil {
			o.Pause()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		err := r.play(ctx, batch)
		batch = batch[:0]
		return err
	}
	for q := range o.Recording.Requests() {
		if q.At < r.begin {
			r.out.WarmUpRequests++
			continue
		}
		batch = batch[:len(batch)+1]
		q.CopyTo(&batch[len(batch)-1])
		if len(batch) == batchSize {
			if err := play(); err != nil {
				return nil, err
			}
		}
	}
	if err := play(); err != nil {
		return nil, err
	}
	return r.report(), nil
}

// batchSize is how many requests each side decides before they are compared:
// enough that waiting for one another costs nothing.
const batchSize = 512

// A run is a rehearsal on its way.
type run struct {
	o             *Options
	before, after side
	first, last   int64 // of the recording
	begin         int64 // requests before are not played
	counted       int64 // requests from here on count
	column        int64 // nanoseconds

	same   bool  // the rules before and after are the same
	unread int64 // requests whose bodies were not read, and matter

	out   Report
	rules map[string]*Rule
	keys  map[id]*tally
}

// An id is a key of a rule.
type id struct{ rule, key string }

// A tally is what became of a key.
type tally struct {
	Key
	of *Rule
}

// A side is rules that decide, in the order of the requests, and what they said.
type side struct {
	rules    *simulate.Rules
	verdicts [batchSize]verdict
	met      map[string]bool // rules that a request has matched
}

// A verdict is what a side said to a request.
type verdict struct {
	matched, denied bool
	unread          bool     // rules asked for its body, which was not read
	id                       // what denied it
	shadow          []string // the rules in shadow that would have
}

// asked is the attributes of a request whose verdict notes whether its unread body is asked for.
type asked struct {
	*Request
	verdict *verdict
}

func (a *asked) Attribute(name string) (string, bool) {
	if a.unread && ofBody(name) {
		a.verdict.unread = true
	}
	return a.Request.Attribute(name)
}

func newRun(o *Options) (*run, error) {
	r := &run{o: o, rules: make(map[string]*Rule), keys: make(map[id]*tally)}
	r.before.met, r.after.met = make(map[string]bool), make(map[string]bool)
	first, last := o.Recording.Span()
	r.first, r.last = first.UnixNano(), last.UnixNano()
	r.begin = r.first
	if o.WarmUp != 0 || o.Fresh && o.Recording.Complete() || o.Checkpoint != nil && o.Checkpoint.At.After(last) {
		o.Checkpoint = nil
	}
	if o.Checkpoint != nil {
		r.begin = o.Checkpoint.At.UnixNano()
	}
	for _, one := range []struct {
		to    *side
		rules *policy.Rules
	}{{&r.before, o.Before}, {&r.after, o.After}} {
		var err error
		one.to.rules, err = simulate.NewRules(r.begin, 4<<20, func(store *memstore.Store) (*policy.Policy, error) {
			if o.Checkpoint != nil {
				if err := store.Load(bytes.NewReader(o.Checkpoint.state)); err != nil {
					return nil, err
				}
			}
			return o.Live.Rehearse(store, one.rules)
		})
		if err != nil {
			r.close()
			return nil, err
		}
		for _, name := range one.rules.Names() {
			r.rule(name)
		}
	}
	r.warmUp()
	r.unsure()
	r.column = max((r.last-r.counted)/columns+1, 1)
	r.out.OverTime = newTimeline(int((r.last-r.counted)/r.column)+1, r.counted, r.column)
	return r, nil
}

func (r *run) close() {
	for _, one := range []*side{&r.before, &r.after} {
		if one.rules != nil {
			one.rules.Close()
		}
	}
}

// rule returns the row of a rule.
func (r *run) rule(name string) *Rule {
	one := r.rules[name]
	if one == nil {
		one = &Rule{Rule: name}
		r.rules[name], r.out.Rules = one, append(r.out.Rules, one)
	}
	return one
}

// warmUp decides from when on requests count, and notes what that leaves
// unknown.
func (r *run) warmUp() {
	span := time.Duration(r.last - r.first)
	want, longest := slowest(r.o.Before, r.o.After)
	warm := r.o.WarmUp
	r.out.State = "empty"
	fresh := r.o.Fresh && r.o.Recording.Complete()
	if fresh {
		r.out.State = "empty, as it was when the recording began"
	}
	switch {
	case r.o.Checkpoint != nil:
		r.out.State = "as it was at " + r.o.Checkpoint.At.UTC().Format("2006-01-02 15:04:05Z")
		warm = time.Duration(r.begin - r.first)
	case warm < 0 || warm == 0 && fresh:
		warm = 0
	case warm == 0:
		warm = min(want, span/2)
	default:
		warm = min(warm, span)
	}
	r.counted = r.first + int64(warm)
	r.out.WarmUp = warm.String()
	if want > warm && !fresh && r.o.Checkpoint == nil {
		r.note("the slowest limit, of %s, remembers for %v: what keys had used of it before is not known, and fewer requests are denied here than would have been", longest, want)
	}
	if r.out.Missing = append([]string{}, r.o.Recording.Missing(r.o.After)...); len(r.out.Missing) > 0 {
		r.note("the new rules look at what was not recorded, of all requests or of some, and is taken as missing: %s", strings.Join(r.out.Missing, ", "))
	}
	if missing := r.o.Recording.Missing(r.o.Before); len(missing) > 0 {
		r.note("the rules in force look at what was not recorded, of all requests or of some, and is taken as missing: %s", strings.Join(missing, ", "))
	}
}

// A recording that lost what came before must last shortest, or have few requests: else a
// flood may have pushed out all others.
const (
	shortest    = time.Minute
	floodedFrom = 10_000
)

// unsure says why the counts are no answer. A recording does not say how long requests
// lasted, so limits in flight let all pass here, nor what responses said. That rules with
// such limits decide as they did is known only where all before them are the same too.
func (r *run) unsure() {
	r.out.Unsure = append([]string{}, r.o.Unsure...)
	r.out.Notes = append(r.out.Notes, r.o.Notes...)
	if span, n := time.Duration(r.last-r.first), r.o.Recording.Len(); !r.o.Recording.Complete() && span < shortest && n >= floodedFrom {
		r.out.Unsure = append(r.out.Unsure, fmt.Sprintf("the recording has %d requests of %v alone: those of a flood may have pushed out all others", n, span))
	}
	before, same := r.o.Before.Names(), true
	for i, name := range r.o.After.Names() {
		same = same && i < len(before) && before[i] == name && r.o.After.SameRule(r.o.Before, name)
		say := func(text string) {
			if text = "rule " + name + ": " + text; same {
				r.note("%s", text)
			} else {
				r.out.Unsure = append(r.out.Unsure, text)
			}
		}
		span := time.Duration(r.last - r.first)
		if i := slices.IndexFunc(r.o.After.Limits(name), func(l *policy.RuleLimit) bool { return l.Action == "" && remembers(l.Limit) > span }); i >= 0 && r.out.State == "empty" && !r.o.After.SameRule(r.o.Before, name) {
			say("the recording is shorter than " + r.o.After.Limits(name)[i].Text + " remembers, and does not say what keys had used before")
		}
		if slices.ContainsFunc(r.o.After.Limits(name), func(l *policy.RuleLimit) bool { return l.Limit.InFlight() }) {
			say("limits in flight are not rehearsed, since the recording does not say how long requests lasted")
		}
		if r.o.Recording.built && r.o.After.BySent(name) {
			say("what requests send is not rehearsed, since a log does not say how much that is: it costs nothing")
		}
		if r.o.After.ByResponse(name) {
			say("what responses cost is not rehearsed, since the recording does not have them: requests cost what is reserved")
		}
	}
	r.same = same && len(before) == len(r.o.After.Names())
}

// mostNotes bounds how many rules are noted whose keys start afresh.
const mostNotes = 20

func (r *run) note(format string, args ...any) {
	r.out.Notes = append(r.out.Notes, fmt.Sprintf(format, args...))
}

// slowest returns the longest time for which any limit remembers a request, and the label
// of its rule.
func slowest(all ...*policy.Rules) (longest time.Duration, label string) {
	for _, rules := range all {
		for _, name := range rules.Names() {
			for _, l := range rules.Limits(name) {
				if l.Action != "" {
					continue
				}
				if span := remembers(l.Limit); span > longest {
					longest, label = span, l.Label+" ("+l.Text+")"
				}
			}
		}
	}
	return longest, label
}

// remembers returns how long a limit counts what was used: a window's period, or
// what a bucket takes to fill.
func remembers(l stint.Limit) time.Duration {
	per := float64(l.Period())
	if c := l.Count(); l.Capacity() > c && c > 0 {
		per *= float64(l.Capacity()) / float64(c)
	}
	return time.Duration(min(per, float64(1<<62)))
}

// play plays requests to both sides at once, and compares.
func (r *run) play(ctx context.Context, batch []Request) error {
	var other error
	var both sync.WaitGroup
	both.Go(func() { other = r.before.decide(ctx, batch) })
	err := r.after.decide(ctx, batch)
	both.Wait()
	if err = cmp.Or(err, other); err != nil {
		return err
	}
	for i := range batch {
		r.compare(&batch[i], &r.before.verdicts[i], &r.after.verdicts[i])
	}
	return nil
}

// decide fills in verdicts. The error is of no request.
func (s *side) decide(ctx context.Context, batch []Request) error {
	for i := range batch {
		q, v := &batch[i], &s.verdicts[i]
		*v = verdict{}
		// A recording does not say how long requests last: each ends before the next.
		result, err := s.rules.Decide(ctx, simulate.Call{At: q.At, Attributes: &asked{q, v}, Cost: q.Cost, Costs: q.Costs})
		fault, refused := errors.AsType[*policy.RequestError](err)
		costs, unknown := errors.AsType[*policy.CostsError](err)
		switch {
		case refused:
			v.matched, v.denied, v.rule = true, true, "(refused: "+fault.Attribute+")"
			continue
		case unknown:
			v.matched, v.denied, v.rule = true, true, "(refused: costs of "+costs.Rule+")"
			continue
		case errors.Is(err, stint.ErrLayers):
			v.matched, v.denied, v.rule = true, true, "(refused: too many limits)"
			continue
		case err != nil:
			return err
		}
		v.matched = len(result.Rules) > 0
		for i := range result.Rules {
			s.met[result.Rules[i].Rule] = true
		}
		if at := result.Tightest; !result.Decision.Allowed && at >= 0 {
			v.denied, v.rule, v.key = true, result.Rules[at].Rule, result.Key(at)
		}
		if !result.ShadowDenied {
			continue
		}
		for _, e := range result.ByRule {
			if e.Shadow && e.Denied {
				v.shadow = append(v.shadow, e.Rule)
			}
		}
	}
	return nil
}

// compare counts what both sides said to a request.
func (r *run) compare(q *Request, before, after *verdict) {
	if q.At < r.counted {
		r.out.WarmUpRequests++
		return
	}
	r.out.Requests++
	if after.unread && !(r.same && before.unread) {
		r.unread++
	}
	if before.matched || after.matched {
		r.out.Matched++
	}
	if !q.Allowed {
		r.out.RecordedDenied++
	}
	t := &r.out.OverTime
	i := min(int((q.At-r.counted)/r.column), len(t.Requests)-1)
	t.Requests[i]++
	for _, name := range before.shadow {
		r.rule(name).ShadowDenied.Before++
	}
	for _, name := range after.shadow {
		r.rule(name).ShadowDenied.After++
	}
	if before.denied {
		key := r.tally(before)
		increment(&t.Before[i], &r.out.Denied.Before, &key.of.Denied.Before, &key.Denied.Before)
		if !after.denied {
			increment(&t.NewlyPassed[i], &r.out.NewlyPassed, &key.of.NewlyPassed, &key.NewlyPassed)
			key.since(q.At)
		}
	}
	if after.denied {
		key := r.tally(after)
		increment(&t.After[i], &r.out.Denied.After, &key.of.Denied.After, &key.Denied.After)
		if !before.denied {
			increment(&t.NewlyDenied[i], &r.out.NewlyDenied, &key.of.NewlyDenied, &key.NewlyDenied)
			key.since(q.At)
		}
	}
}

// increment counts one more over time, in all, of the rule and of the key.
func increment(counts ...*int64) {
	for _, n := range counts {
		*n++
	}
}

// tally returns the count of what denied a request.
func (r *run) tally(v *verdict) *tally {
	one := r.keys[v.id]
	if one == nil {
		key := strings.Clone(v.key) // which may lie in the recording
		one = &tally{Key: Key{Rule: v.rule, Key: key}, of: r.rule(v.rule)}
		r.keys[id{v.rule, key}] = one
	}
	return one
}

// since notes when a key is newly denied or passed first.
func (t *tally) since(at int64) {
	if t.First.IsZero() {
		t.First = time.Unix(0, at).UTC()
	}
}

func newTimeline(n int, from, column int64) Timeline {
	return Timeline{
		Column: time.Duration(column).Round(time.Millisecond).String(), From: time.Unix(0, from).UTC(),
		Requests: make([]int64, n), Before: make([]int64, n), After: make([]int64, n), NewlyDenied: make([]int64, n), NewlyPassed: make([]int64, n),
	}
}

// report sums up.
func (r *run) report() *Report {
	out := &r.out
	out.From, out.To = time.Unix(0, r.counted).UTC(), time.Unix(0, r.last).UTC()
	out.Unread = r.o.Unread
	if all := out.Matched + out.Unread; all > 0 {
		out.NewlyDeniedShare = float64(out.NewlyDenied+out.Unread) / float64(all)
	}
	var all []*tally
	for _, t := range r.keys {
		b, a := t.Denied.Before > 0, t.Denied.After > 0
		if b {
			out.KeysDenied.Before++
		}
		if a {
			out.KeysDenied.After++
		}
		switch {
		case a && !b:
			out.KeysNewlyDenied++
		case b && !a:
			out.KeysNewlyPassed++
		}
		all = append(all, t)
	}
	for _, name := range r.o.After.Names() {
		if !r.after.met[name] && !r.o.After.SameRule(r.o.Before, name) {
			out.Unsure = append(out.Unsure, "rule "+name+": it changes, and no request matched it")
		}
	}
	if r.unread > 0 {
		out.Unsure = append(out.Unsure, fmt.Sprintf("the new rules look into the bodies of %s that no rule had read, and take their fields as missing", wording.Count(r.unread, "request")))
	}
	out.Denials = r.top(all, func(t *tally) int64 { return t.NewlyDenied })
	out.Passes = r.top(all, func(t *tally) int64 { return t.NewlyPassed })
	if n := r.before.rules.Store.Stats().Overflowed + r.after.rules.Store.Stats().Overflowed; n > 0 {
		r.note("more keys than fit into memory: the counts are not exact")
	}
	for _, change := range r.o.After.Compare(r.o.Before) {
		if change.Fresh && len(out.Notes) < mostNotes {
			r.note("%s", change)
		}
	}
	if out.Notes == nil {
		out.Notes = []string{}
	}
	return out
}

// top returns the keys with the highest counts above 0.
func (r *run) top(all []*tally, by func(*tally) int64) []Key {
	slices.SortFunc(all, func(a, b *tally) int {
		return cmp.Or(cmp.Compare(by(b), by(a)), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Key.Key, b.Key.Key))
	})
	keys := []Key{}
	for _, t := range all[:min(r.o.Top, len(all))] {
		if by(t) == 0 {
			break
		}
		one := t.Key
		if one.KeyHash = r.o.Live.KeyHash(one.Rule, one.Key); !r.o.Names {
			one.Key = ""
		}
		keys = append(keys, one)
	}
	return keys
}
