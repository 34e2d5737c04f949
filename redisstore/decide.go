package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/layercheck"
	"github.com/stint-dev/stint/meter"
)

// bound implements [stint.Bound].
type bound struct {
	store    *Store
	name     string
	limits   []*limit
	compiled []*compiled // the limits as the script takes them
}

// Limits implements [stint.Bound].
func (b *bound) Limits() []stint.Limit {
	out := make([]stint.Limit, len(b.limits))
	for i, f := range b.compiled {
		out[i] = f.limit
	}
	return out
}

// Name implements [stint.Bound].
func (b *bound) Name() string { return b.name }

// Allow implements [stint.Bound].
func (b *bound) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	d, err := b.Decide(ctx, meter.OpTake, key, cost)
	return d.Allowed, err
}

// Decide implements [stint.Bound].
func (b *bound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	return b.store.Decide(ctx, op, []stint.Layer{{Bound: b, Key: key}}, cost)
}

// Decide implements [stint.Store].
func (s *Store) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	if of, ok := s.modes.ofModes(layers); ok {
		return s.modes.Decide(ctx, op, of, cost)
	}
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	var few [4]part
	parts, err := s.request(few[:0], layers)
	if err != nil {
		return stint.Decision{}, err
	}
	return s.decide(ctx, op, parts, cost)
}

// decide decides a request.
func (s *Store) decide(ctx context.Context, op meter.Op, parts []part, cost int64) (stint.Decision, error) {
	var groups []group
	if len(parts) > 1 && s.driver.Cluster() {
		groups = s.groups(parts)
	}
	if groups == nil {
		d, err := s.decideParts(ctx, op, parts, cost)
		if !s.parted(err) {
			return d, err
		}
		groups = s.slotGroups(parts)
	}
	s.tally.crossSlot.Add(1)
	d, err := s.decideGroups(ctx, op, parts, groups, cost)
	if s.parted(err) {
		d, err = s.decideGroups(ctx, op, parts, s.slotGroups(parts), cost)
	}
	return d, err
}

// decideParts decides a request whose parts one call reaches.
func (s *Store) decideParts(ctx context.Context, op meter.Op, parts []part, cost int64) (stint.Decision, error) {
	if op != meter.OpTakeUpTo && isFast(parts) {
		return s.fastPath(ctx, op, parts, cost)
	}
	verb := map[meter.Op]string{meter.OpTake: "t", meter.OpPeek: "p", meter.OpTakeUpTo: "u"}[op]
	a := s.longPath(ctx, parts, nil, verb, number(cost))
	if a.err != nil {
		return stint.Decision{}, a.err
	}
	return a.join(parts, op != meter.OpPeek), nil
}

// A part is one limit of a request, on one key.
type part struct {
	compiled   *compiled
	begin, end string // the beginning and the end of its names in Redis
	key        string // the caller's key
	limit      *limit
	weight     int64
	excuse     time.Duration   // how long its reservation excuses denials
	raises     string          // the record of the reservation that it raises, or ""
	mild       bool            // its denials begin no ban
	at         int             // its index in the request
	answer     *stint.Decision // where to write its own answer, or nil
	drain      *fastBucket     // the parameters of its answer, if it is a bucket
}

// append appends a part's arguments for the script, without its weight. now is a time in
// ns that is near the server's.
func (p *part) append(args []string, now int64) []string {
	args = append(args, p.compiled.args...)
	if p.compiled.calendar != nil {
		args = append(args, p.compiled.calendar.at(now)...)
	}
	return args
}

// lateness is how much later than its caller waits a call may still note a denial: as much as the
// server's clock may be ahead of what is known of it.
const lateness = time.Second

// notes reports whether the limit notes what it denies.
func (p *part) notes() bool { return p.compiled.limit.Ban() > 0 || p.compiled.limit.CountDenied() }

// weighs returns the part's weight for the script, with what else the part has: the lengths of
// its ban and of its excuse in µs, by when it is to be decided, 0 for whenever, if the limit
// notes denials, and the record of the reservation that it raises.
func (p *part) weighs(by int64) string {
	weight := number(p.weight)
	switch ban := p.compiled.limit.Ban(); {
	case ban == 0:
	case p.mild:
		weight += "b0"
	default:
		weight += "b" + micros(int64(ban))
	}
	if p.excuse > 0 {
		weight += "x" + micros(int64(p.excuse))
	}
	if by > 0 && p.notes() {
		weight += "y" + micros(by)
	}
	if p.raises != "" {
		weight += "o" + p.raises
	}
	return weight
}

// request appends the layers, flattened.
func (s *Store) request(parts []part, layers []stint.Layer) ([]part, error) {
	if s.closed.Load() {
		return nil, stint.ErrClosed
	}
	for i, layer := range layers {
		b, ok := layer.Bound.(*bound)
		if ok = ok && b.store == s; !ok {
			return nil, layercheck.One(i, &layer, false, 0)
		}
		if err := layercheck.One(i, &layer, true, len(b.limits)); err != nil {
			return nil, err
		}
		begin, end := s.names.around(layer.Key)
		for k, l := range b.limits {
			for j := range parts {
				if parts[j].limit == l && parts[j].begin == begin && parts[j].end == end {
					return nil, layercheck.Twice(b.name)
				}
			}
			p := part{compiled: b.compiled[k], begin: begin, end: end, key: layer.Key, limit: l, weight: max(layer.Weight, 1), at: len(parts)}
			if layer.Answers != nil {
				p.answer = &layer.Answers[k]
			}
			parts = append(parts, p)
		}
	}
	if err := layercheck.Count(len(parts)); err != nil {
		return nil, err
	}
	return parts, s.bearable(entriesOf(parts))
}

// longAnswer is longPath for callers that need the numbers alone.
func (s *Store) longAnswer(ctx context.Context, parts []part, more []string, verb string, head ...string) (answer, error) {
	a := s.longPath(ctx, parts, more, verb, head...)
	return a.answer, a.err
}

// longPath runs the general path of the script on the states of the parts and on more
// keys. head are the arguments after the verb.
func (s *Store) longPath(ctx context.Context, parts []part, more []string, verb string, head ...string) groupAnswer {
	keys := make([]string, 0, len(parts)+len(more))
	for i := range parts {
		keys = append(keys, state(parts[i].begin, parts[i].end, parts[i].limit))
	}
	keys = append(keys, more...)
	shares := overflows(verb, head[0]) && s.flooded(&parts[0])
	if slices.ContainsFunc(parts, func(p part) bool { return p.compiled.calendar != nil || p.notes() }) {
		var cancel context.CancelFunc
		ctx, cancel = s.within(ctx)
		defer cancel()
	}
	var a groupAnswer
	err := s.aboutNow(func(now int64, stale func(any) bool) error {
		args := append(make([]string, 0, 8+8*len(parts)), verb)
		args = append(args, head...)
		by := int64(0)
		if !strings.Contains("psyf", verb) { // it may note a denial
			by = now + int64(s.timeout+lateness)
		}
		for i := range parts {
			args = append(args, parts[i].weighs(by))
			args = parts[i].append(args, now)
		}
		return s.evalLong(ctx, parts, keys, args, shares, func(reply any, cells string) error {
			if stale(reply) {
				return nil
			}
			a = readGroupAnswer(reply, verb, len(parts))
			a.cells = cells
			return a.err
		})
	})
	if err != nil {
		return groupAnswer{err: asPeek(verb, err)}
	}
	s.spendLong(verb, parts, a.answer, shares)
	s.countCells(a.cells, a.denied())
	return a
}

// A peekError is the error of a peek whose answer was lost: it has charged nothing, so it matches
// [ErrNotExecuted] in place of [ErrAmbiguous].
type peekError struct{ error }

func (e peekError) Is(target error) bool {
	return target == ErrNotExecuted || target != ErrAmbiguous && errors.Is(e.error, target)
}
func (e peekError) As(target any) bool { return errors.As(e.error, target) }

// asPeek returns the error of a call by its verb.
func asPeek(verb string, err error) error {
	if verb != "p" && verb != "P" || !errors.Is(err, ErrAmbiguous) {
		return err
	}
	return peekError{err}
}

// aboutNow makes a call whose arguments hold bounds around a time in ns: of calendar windows, or
// when it is too late. It makes the call again if the server's time is not within them; the
// reader of the reply learns that from stale, which it calls first.
func (s *Store) aboutNow(call func(now int64, stale func(reply any) bool) error) error {
	for range 3 {
		is, t := false, int64(0)
		err := call(s.near(), func(reply any) bool {
			is, t = staleAt(reply)
			return is
		})
		if err != nil || !is {
			return err
		}
		s.ahead.Store(t - time.Now().UnixNano())
	}
	return fmt.Errorf("%w: the server's clock does not stand still", ErrNotExecuted)
}

// near returns a time in ns that should be near the server's.
func (s *Store) near() int64 {
	if s.now != nil {
		return s.now()
	}
	return time.Now().UnixNano() + s.ahead.Load()
}

// ofModes returns the layers of a request with bounds of modes, if one was bound in a mode.
func (m *modes) ofModes(layers []stint.Layer) ([]stint.Layer, bool) {
	some := false
	for i := range layers {
		if _, ok := layers[i].Bound.(*modeBound); ok {
			some = true
		}
	}
	if !some {
		return nil, false
	}
	out := slices.Clone(layers)
	for i := range out {
		if b, ok := out[i].Bound.(*bound); ok && b.store == m.store {
			out[i].Bound = m.plain(b)
		}
	}
	return out, true
}

// plain returns limits that were bound without a mode as limits of mode Strict without a
// cache of denials.
func (m *modes) plain(b *bound) *modeBound {
	of := &modeBound{modes: m, name: b.name, all: make([]*boundLimit, len(b.limits)), onServer: b}
	for i, known := range b.limits {
		of.all[i] = &boundLimit{
			modes: m, mode: Strict, name: known.name, limit: b.compiled[i].limit, compiled: b.compiled[i],
			strict: &bound{store: m.store, name: b.name, limits: b.limits[i : i+1], compiled: b.compiled[i : i+1]},
		}
	}
	return of
}

// maxLogs is how many logs of Options.MaxLog entries one request may have: the server
// does nothing else while it reads them.
const maxLogs = 4

// entriesOf returns how many entries the states of parts may hold.
func entriesOf(parts []part) (n int64) {
	for i := range parts {
		n += parts[i].compiled.entries
	}
	return n
}

// bearable returns an error if one request would have too many log entries.
func (s *Store) bearable(entries int64) error {
	if (entries-1)/maxLogs < s.maxLog {
		return nil
	}
	return fmt.Errorf("%w: logs and parts of up to %d entries together: at most %d, four times Options.MaxLog; a log or sliding_buckets with fewer will do, or a request with fewer of them",
		stint.ErrLayers, entries, maxLogs*s.maxLog)
}
