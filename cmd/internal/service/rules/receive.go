package rules

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesource"
)

// errOlder is for a state that does not follow the one held.
var errOlder = errors.New("the source was restored to an older state, or is another one: if it is right, stint rules accept says so to all nodes")

// A receiving is one state of a source on its way into force: read as a whole,
// then taken as a whole or not at all.
type receiving struct {
	w       *Follower
	s       *rulesource.Snapshot
	file    *File               // new rules; nil if they are the same
	set     *policy.Replacement // all overrides; nil for changes
	changes []change
	parsed  map[string]policy.Override // by text: customers share few
	ends    []ending
	copy    *copying
	bad     leftOut // overrides that cannot be read, of this state
}

// leftOut is the overrides that a source holds and a node cannot take, by rule
// and key, and why. It is bounded: of more, only the number is known.
type leftOut struct {
	why  map[[2]string]error
	more int
}

const mostLeftOut = 1000

func (l *leftOut) add(at [2]string, err error) {
	if l.why == nil {
		l.why = make(map[[2]string]error)
	}
	if l.why[at] == nil && len(l.why) == mostLeftOut {
		l.more++
		return
	}
	l.why[at] = err
}

// String says how many are left out, and why one of them; "" for none.
func (l *leftOut) String() string {
	first := ""
	for at, err := range l.why {
		if why := fmt.Sprintf("rule %s: %v", at[0], err); first == "" || why < first {
			first = why
		}
	}
	if first == "" {
		return ""
	}
	return fmt.Sprintf("%d overrides cannot be in force, such as one of %s", len(l.why)+l.more, first)
}

// A change is one override that changes.
type change struct {
	rule, key string
	o         policy.Override
}

// load reads what is new in a source and puts it in force.
func (w *Follower) load(ctx context.Context, from rulesource.Source) (*rulesource.Snapshot, error) {
	held := w.held
	if w.copy.stale() {
		held = rulesource.Version{Revision: held.Revision, Change: held.Change} // everything anew
	}
	r := &receiving{w: w, parsed: make(map[string]policy.Override)}
	s, err := from.Load(ctx, held, r)
	if err != nil {
		r.copy.drop()
		return s, err
	}
	return s, r.commit(s, from)
}

// Begin implements [rulesource.Receiver].
func (r *receiving) Begin(s *rulesource.Snapshot, whole bool) error {
	r.s = s
	r.w.offset.measure(s)
	if !s.Version.Follows(r.w.held) {
		return &refusedVersion{s.Version, errOlder}
	}
	if s.Document != nil {
		file, err := Decode(s.Name, s.Document)
		if err != nil {
			return &refusedVersion{s.Version, err}
		}
		r.file = file
	}
	if whole {
		r.set = r.w.source.Policy().ReplaceOverrides()
	}
	if r.w.from == r.w.f.Source {
		r.copy = r.w.copy.begin(s, whole)
	}
	return nil
}

// Override implements [rulesource.Receiver]. One that cannot be read is left
// out, with an alarm: it must not keep back all others.
func (r *receiving) Override(o *rulesource.Override) error {
	own, err := r.parse(o)
	if end := r.local(o.Expires); !end.IsZero() && !end.After(time.Now()) {
		own = policy.Override{} // it has ended meanwhile
	}
	if err == nil && r.set != nil {
		err = r.set.Set(o.Rule, o.Key, own)
	}
	if err != nil {
		r.bad.add([2]string{o.Rule, o.Key}, err)
		return nil
	}
	if r.set == nil {
		r.changes = append(r.changes, change{o.Rule, o.Key, own})
	}
	if r.set == nil || !o.Expires.IsZero() {
		r.ends = append(r.ends, ending{rule: o.Rule, key: o.Key, at: r.local(o.Expires)})
	}
	if r.copy != nil {
		r.copy.override(o)
	}
	return nil
}

// Plan implements [rulesource.Receiver].
func (r *receiving) Plan(p *rulesource.Plan) error {
	if r.copy != nil {
		r.copy.plan(p)
	}
	return nil
}

// local returns a time of the source's clock as this machine has it; zero stays
// zero.
func (r *receiving) local(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(-r.w.offset.ahead)
}

// trustOffset is how long a measurement of the source's clock is kept while
// later ones are less certain: clocks drift.
const trustOffset = 10 * time.Minute

// An offset is how far a source's clock is ahead, as best known.
type offset struct {
	ahead, doubt time.Duration
	at           time.Time // of the measurement; zero for none
}

// measure takes a measurement if it is better than the one before, or that is
// old.
func (o *offset) measure(s *rulesource.Snapshot) {
	if o.at.IsZero() || s.Doubt <= o.doubt || time.Since(o.at) > trustOffset {
		*o = offset{s.Ahead, s.Doubt, time.Now()}
	}
}

// parse reads what an override does.
func (r *receiving) parse(o *rulesource.Override) (own policy.Override, err error) {
	switch {
	case o.Removed:
		return own, nil
	case o.Unlimited || o.Block:
		return policy.Override{Unlimited: o.Unlimited, Block: o.Block}, nil
	}
	text := strings.Join(o.Limits, "\n")
	own, ok := r.parsed[text]
	if ok {
		return own, nil
	}
	for _, one := range o.Limits {
		l, err := stint.Parse(one)
		if err != nil {
			return policy.Override{}, err
		}
		own.Limits = append(own.Limits, l)
	}
	if len(own.Limits) == 0 {
		return own, errors.New("it has no limits")
	}
	r.parsed[text] = own
	return own, nil
}

// commit puts what was received in force, and then keeps the copy of it.
func (r *receiving) commit(s *rulesource.Snapshot, from rulesource.Source) error {
	w := r.w
	src := w.source
	if r.file != nil && s.Hash != w.hash {
		src.mu.Lock()
		err := src.take(r.file)
		src.mu.Unlock()
		if err != nil {
			r.copy.drop()
			return &refusedVersion{s.Version, err}
		}
	}
	w.expiry.change(r.set != nil, r.ends, r.apply)
	src.mu.Lock()
	was := w.problem
	w.held, w.hash, w.since, w.problem = s.Version, s.Hash, time.Now(), w.left.String()
	if from != w.f.Source {
		w.problem = "started from the last copy"
	}
	now := w.problem
	src.mu.Unlock()
	src.empty.Store(false)
	w.from = w.f.Source
	if now != "" && now != was {
		w.f.Log.Error("rules: not all is as the source has it", "source", w.f.Name, "revision", s.Version.Revision, "change", s.Version.Change, "err", now)
	}
	if err := r.copy.keep(); err != nil {
		w.f.Log.Error("rules: no copy is kept: this node cannot start while the source is gone", "err", err)
	}
	return nil
}

// apply puts the overrides in force.
func (r *receiving) apply() {
	left := &r.w.left
	if r.set != nil {
		*left = leftOut{}
		if err := r.set.Commit(); err != nil {
			left.add([2]string{}, err)
		}
	}
	p := r.w.source.Policy()
	for _, c := range r.changes {
		delete(left.why, [2]string{c.rule, c.key})
		if err := p.SetOverride(c.rule, c.key, c.o); err != nil {
			left.add([2]string{c.rule, c.key}, err)
		}
	}
	for at, err := range r.bad.why {
		left.add(at, err)
	}
	left.more += r.bad.more
}
