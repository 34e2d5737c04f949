package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/aside"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules/rulescopy"
)

// errOlder says that a state does not follow the one held.
var errOlder = errors.New("the source was restored to an older state, and may have changed since, or is another one: if it is right, stint rules accept says so to all nodes")

// errAnew stops a read of changes because everything must be read.
var errAnew = errors.New("everything is to be read")

// mostChanges is how many overrides may change one by one, unless that is less than an eighth of
// those held. Above it, everything is read into a new set beside the one in force, which takes
// little additional memory and is put in force at once.
const mostChanges = 1 << 14

// A receiving is one state of a source that is being read. It is put in force as a whole or not at
// all.
type receiving struct {
	w         *Follower
	s         *rulesource.Snapshot
	file      *File               // new rules; nil if they have not changed
	set       *policy.Replacement // all overrides; nil while only changes are read
	changes   []change
	most      int                   // how many changes may be read one by one
	onDemand  bool                  // overrides are read on demand
	requested []rulesource.Override // changes of known customers, with onDemand
	plans     []rulesource.Plan
	parsed    map[string]policy.Override // by text, since many customers have the same
	ends      endings                    // the endings of set
	now       time.Time                  // by the source's clock
	copy      *rulescopy.Writing
	pauses    *aside.Slices // nil before requests come
	bad       leftOut       // overrides of this state that cannot be read
}

// leftOut are the overrides of a source that a node cannot use, by rule and key, with the reason.
// It is bounded: beyond the bound it only counts.
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

func (l *leftOut) remove(at [2]string) { delete(l.why, at) }

// String says how many are left out, and why one of them is; "" for none.
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

// A change is one changed override.
type change struct {
	of   customer
	o    policy.Override
	ends time.Time
}

// load reads what is new in a source and puts it in force. It makes pauses unless that is nil.
func (w *Follower) load(ctx context.Context, from rulesource.Source, pauses *aside.Slices) (*rulesource.Snapshot, error) {
	held := w.held
	if w.copy.Stale() {
		held = held.ForFullLoad()
	}
	r := w.receiving(pauses)
	s, err := from.Load(ctx, held, r)
	if errors.Is(err, errAnew) {
		r.copy.Drop()
		r = w.receiving(pauses)
		s, err = from.Load(ctx, held.ForFullLoad(), r)
	}
	if err != nil {
		r.copy.Drop()
		return s, err
	}
	return s, r.commit(s, from)
}

func (w *Follower) receiving(pauses *aside.Slices) *receiving {
	return &receiving{w: w, parsed: make(map[string]policy.Override), ends: newEndings(), pauses: pauses}
}

// Begin implements [rulesource.Receiver].
func (r *receiving) Begin(s *rulesource.Snapshot, whole bool) error {
	r.s = s
	r.w.expiry.measured(s.Ahead, s.Doubt)
	r.now = r.w.expiry.now()
	if s.Strayed || !s.Version.Follows(r.w.held) || r.w.differs(s) {
		return &refusedVersion{s.Version, errOlder}
	}
	r.onDemand = r.w.demand != nil
	if s.Document != nil {
		file, err := r.w.decode(s)
		if err != nil {
			return &refusedVersion{s.Version, err}
		}
		_, can := r.w.f.Source.(rulesource.OverrideFinder)
		r.file, r.onDemand = file, file.Settings.OnDemand && can
	}
	if r.onDemand != (r.w.demand != nil) && !whole {
		return errAnew
	}
	p := r.w.source.Policy()
	if whole {
		r.set = p.ReplaceOverrides()
	}
	held, _, _ := p.Overrides()
	r.most = max(mostChanges, held/8)
	if r.w.from == r.w.f.Source {
		r.copy = r.w.copy.Begin(s, whole, r.w.held)
	}
	if _, can := r.w.from.(rulesource.OverrideFinder); r.onDemand && whole && can {
		return rulesource.ErrPlansOnly
	}
	return nil
}

// differs reports whether the source has other rules under the number of those that are held. A
// revision never changes, so the source was restored and changed since.
func (w *Follower) differs(s *rulesource.Snapshot) bool {
	v, held := s.Version, w.held
	return v.Identity == held.Identity && v.Epoch == held.Epoch && v.Revision == held.Revision && held.Revision > 0 && s.Hash != w.hash
}

// Override implements [rulesource.Receiver]. An override that cannot be read is left out and
// reported, since it must not keep back all others.
func (r *receiving) Override(o *rulesource.Override) error {
	r.pauses.Pause()
	at := customer{o.Rule, o.Key}
	if r.onDemand {
		if r.set == nil && r.w.demand.concerns(at) { // overrides of a copy are not used with on_demand
			r.requested = append(r.requested, *o)
		}
		return nil
	}
	own, err := r.parse(o)
	if !o.Expires.IsZero() && !o.Expires.After(r.now) {
		own = policy.Override{} // the override has ended
	}
	if err == nil && r.set != nil {
		err = r.set.Set(o.Rule, o.Key, own)
	}
	if err != nil {
		r.bad.add(at, err)
		return nil
	}
	if r.set == nil {
		if len(r.changes) == r.most {
			return errAnew
		}
		r.changes = append(r.changes, change{at, own, o.Expires})
	} else {
		r.ends.note(at, o.Expires)
	}
	r.bad.remove(at)
	r.copy.Override(o)
	return nil
}

// Plan implements [rulesource.Receiver].
func (r *receiving) Plan(p *rulesource.Plan) error {
	r.pauses.Pause()
	if r.set == nil {
		r.plans = append(r.plans, *p)
	} else if err := r.set.SetPlan(p.Attribute, p.Value, p.Plan); err != nil {
		r.bad.add([2]string{planOf(p), ""}, err)
	}
	r.copy.Plan(p)
	return nil
}

// planOf is the rule under which a plan stands in leftOut.
func planOf(p *rulesource.Plan) string { return "plan of " + p.Attribute }

// parse returns what an override does. Many customers share one text.
func (r *receiving) parse(o *rulesource.Override) (policy.Override, error) {
	if o.Removed || o.Unlimited || o.Block {
		return parseOverride(o)
	}
	text := strings.Join(o.Limits, "\n")
	if own, ok := r.parsed[text]; ok {
		return own, nil
	}
	own, err := parseOverride(o)
	if err == nil {
		r.parsed[text] = own
	}
	return own, err
}

// commit puts what was received in force, and then keeps the copy.
func (r *receiving) commit(s *rulesource.Snapshot, from rulesource.Source) error {
	w := r.w
	src := w.source
	if r.file != nil && s.Hash != w.hash {
		src.mu.Lock()
		err := src.take(r.file)
		src.mu.Unlock()
		if err != nil {
			r.copy.Drop()
			return &refusedVersion{s.Version, err}
		}
	}
	w.expiry.change(r.apply)
	w.askFor(r)
	src.mu.Lock()
	was := w.problem
	w.held, w.hash, w.since, w.problem = s.Version, s.Hash, time.Now(), w.left.String()
	if s.Refused != nil {
		w.problem = cmp.Or(w.problem, s.Refused.Error())
	}
	w.problem = cmp.Or(w.problem, w.lost)
	if from != w.f.Source {
		w.problem = "started from the last copy"
	}
	now := w.problem
	src.mu.Unlock()
	src.empty.Store(false)
	w.from = w.f.Source
	switch {
	case now == was:
	case now == "":
		src.notify(nil)
	default:
		w.f.Log.Error("rules: not all is as the source has it", "source", w.f.Name, "revision", s.Version.Revision, "change", s.Version.Change, "err", now)
		src.notify(errors.New(now))
	}
	w.kept(r.copy)
	return nil
}

// kept keeps the copy of what is in force, and logs a failure.
func (w *Follower) kept(copy *rulescopy.Writing) {
	if copy == nil {
		return
	}
	lost := ""
	if err := copy.Keep(); err != nil {
		lost = err.Error() + ": this node cannot start with these rules while the source is gone"
		w.f.Log.Error("rules: no copy is kept", "err", lost)
	}
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	if w.problem == w.lost {
		w.problem = lost
	}
	w.lost = lost
}

// apply puts the overrides in force, with their endings.
func (r *receiving) apply(ends *endings) {
	left := &r.w.left
	if r.set != nil {
		*left, *ends = leftOut{}, r.ends
		if err := r.set.Commit(); err != nil {
			left.add([2]string{}, err)
		}
	}
	p := r.w.source.Policy()
	for _, c := range r.changes {
		left.remove(c.of)
		if err := p.ChangeOverride(c.of[0], c.of[1], c.o); err != nil {
			left.add(c.of, err)
		}
		ends.note(c.of, c.ends)
	}
	for i := range r.plans {
		one := &r.plans[i]
		if err := p.SetPlan(one.Attribute, one.Value, one.Plan); err != nil {
			left.add([2]string{planOf(one), ""}, err)
		}
	}
	for at, err := range r.bad.why {
		left.add(at, err)
	}
	left.more += r.bad.more
}
