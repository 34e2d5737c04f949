// Package simulate tries limits and rules on virtual time. A reader yields requests with the
// moments at which they come, a [Runner] decides them under limits, or [Rules] decide them as
// policies do, and a writer takes the decisions. No decision waits or reads a real clock: a day of
// requests takes as long as its decisions do.
//
// A Runner also runs operations as lines, one JSON object in, one out. A test in any language can
// so hold a store to docs/SEMANTICS.md; the vectors of package storetest are run this way.
//
//	in:  {"t":"0s","key":"a","cost":1}
//	out: {"t":"0s","key":"a","allowed":true,"limit":5,"remaining":4,"retry_after":"0s","reset_after":"200ms"}
//
// An input line has these fields:
//
//   - t, required: a Go duration since the Unix epoch, or an RFC 3339 time, exact to
//     the nanosecond.
//   - key, required, unless every limit of the line names its own, or the line
//     settles, cancels or changes.
//   - op: take unless given; peek, take_up_to, reserve, settle, cancel, refund, reset,
//     change.
//   - cost: 1 unless given; a whole number from 0 to 2^63 − 1. Settle needs it.
//   - lasts: how long a take is in flight, for limits in flight; 0s unless given.
//   - ttl: the time to live of a reservation; 1m unless given.
//   - excuses: how long the reserved units excuse denials; 0 unless given.
//   - reservation: what settle and cancel refer to; the first that was granted is r1.
//   - limits: the layers of this line instead of the runner's limits, such as
//     [{"limit":"10/s","key":"ip:1"}]. A layer without a key uses the key of the line.
//     For change, the limits that replace the runner's; what was used under one of the
//     same identity is used under the new one.
//
// An answer repeats t and key. It has allowed, limit, remaining, retry_after and reset_after,
// except after reset and change. It has tightest, the text of a limit, with several limits; taken
// for take_up_to; delay where it is not 0; denied_by, the texts of limits, when denied; and
// reservation when one was granted. Settling an expired reservation answers with the present state,
// settling it a second time with the first answer.
//
// Make a [Clock], open a store on it, and give both to [New]. To run lines, call [Runner.Run];
// without lines, [Runner.Do]. Every line is decided at the greatest time of any line so far, so
// that the same lines always give the same answers.
//
// Lines are read strictly: an unknown field, a field given twice, a cost that is no whole number or
// text that is not UTF-8 is a [LineError], never a guess. A line costs about a microsecond beside
// the decision itself.
package simulate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/meter"
)

// A Runner carries out operations on a store. It may be used from one
// goroutine at a time.
type Runner struct {
	store        stint.Store
	clock        *Clock
	bounds       []stint.Bound   // the limits of lines that bring none, one bound for each
	texts        []string        // the texts of these limits, as they were given
	named        []stint.Bound   // the first bound of each name that was ever bound
	limiter      *stint.Limiter  // used instead of bounds where a limit is in flight
	holds        []inflight.Hold // what a peek asks about where all limits are in flight
	own          map[string]stint.Bound
	reservations map[string]*reservation
	layers       []stint.Layer // the layers of the present operation
}

// A reservation is kept as long as the Runner, so that settling it a second time gives the same
// answer even when the store has forgotten it.
type reservation struct {
	id      stint.ReservationID
	layers  []stint.Layer
	texts   []string // the texts of its limits
	settled bool
	answer  stint.Decision
}

// New returns a Runner for a store that was opened on the clock. The limits, as text, are the
// layers of every line that brings none; there may be no limits.
func New(store stint.Store, clock *Clock, limits []string) (*Runner, error) {
	r := &Runner{
		store: store, clock: clock,
		own:          make(map[string]stint.Bound),
		reservations: make(map[string]*reservation),
	}
	return r, r.setLimits(limits)
}

// setLimits makes limits the layers of all lines that bring none. A limit with the identity of a
// former one takes over its states.
func (r *Runner) setLimits(texts []string) error {
	limits, flying := make([]stint.Limit, len(texts)), false
	for i, text := range texts {
		var err error
		if limits[i], err = stint.Parse(text); err != nil {
			return err
		}
		flying = flying || limits[i].InFlight()
	}
	switch {
	case r.texts != nil && flying != (r.limiter != nil):
		return errKinds
	case flying:
		return r.fly(limits, texts)
	}
	var bounds []stint.Bound
	for _, limit := range limits {
		name := limit.String()
		known := func(b stint.Bound) bool { return b.Name() == name }
		free := func(b stint.Bound) bool {
			taken := slices.ContainsFunc(bounds, func(o stint.Bound) bool { return o.Name() == b.Name() })
			return !taken && b.Limits()[0].ID() == limit.ID()
		}
		if i := slices.IndexFunc(r.named, free); i >= 0 && !slices.ContainsFunc(r.named, known) {
			name = r.named[i].Name()
		}
		bound, err := r.store.Bind(name, limit)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(bounds, func(b stint.Bound) bool { return b.Name() == name }) {
			return fmt.Errorf("%w: limit %q twice for one key", stint.ErrLayers, name)
		}
		bounds = append(bounds, bound)
	}
	for _, bound := range bounds {
		if !slices.ContainsFunc(r.named, func(b stint.Bound) bool { return b.Name() == bound.Name() }) {
			r.named = append(r.named, bound)
		}
	}
	r.bounds, r.texts = bounds, texts
	return nil
}

// bind returns the bound of a limit given as text. The text is the name of its states.
func (r *Runner) bind(text string) (stint.Bound, error) {
	if bound := r.own[text]; bound != nil {
		return bound, nil
	}
	limit, err := stint.Parse(text)
	if err == nil && limit.InFlight() {
		err = fmt.Errorf("limit %q is in flight: give it to all lines", text)
	}
	if err != nil {
		return nil, err
	}
	bound, err := r.store.Bind(limit.String(), limit)
	if err == nil {
		r.own[text] = bound
	}
	return bound, err
}

// Run answers every line of in on out. At a line that it cannot answer it stops with a
// [*LineError], after writing the answers before it; blank lines are skipped. Answers are flushed
// whenever in has nothing more at hand, so a caller may wait for each.
func (r *Runner) Run(in io.Reader, out io.Writer) error {
	w := bufio.NewWriterSize(out, 64<<10)
	var buf []byte
	err := EachLine(flushing{in, w}, func(_ int, line []byte) error {
		op, err := ParseOp(line)
		if err != nil {
			return err
		}
		a, err := r.Do(op)
		if err == nil {
			buf = append(a.AppendJSON(buf[:0]), '\n')
			_, err = w.Write(buf)
		}
		return err
	})
	return errors.Join(w.Flush(), err)
}

// Do carries out one operation at its time, or at the greatest time so far if that is later.
func (r *Runner) Do(op Op) (Answer, error) {
	r.clock.Advance(op.At)
	a := Answer{T: op.T, Key: op.Key, NoKey: op.NoKey, Verb: op.Verb}
	var err error
	switch op.Verb {
	case Settle, Cancel:
		a.Decision, err = r.settle(op)
		if err == nil {
			a.setTightest(r.reservations[op.Reservation].texts)
		}
		return a, err
	case Change:
		return a, r.change(op)
	}
	if r.limiter != nil && len(op.Limits) == 0 {
		if err = checkFlying(op); err == nil {
			a.Decision, err = r.acquire(Request{Key: op.Key, Cost: op.Cost, Lasts: op.Lasts})
		}
	} else {
		err = r.verb(op, &a)
	}
	if err != nil {
		return Answer{}, err
	}
	for layer := range a.Decision.Denied.Limits() {
		a.DeniedBy = append(a.DeniedBy, r.textsOf(op)[layer])
	}
	if op.Verb != Reset {
		a.setTightest(r.textsOf(op))
	}
	return a, nil
}

func (r *Runner) verb(op Op, a *Answer) (err error) {
	if err := r.arrange(op); err != nil {
		return err
	}
	ctx := context.Background()
	switch op.Verb {
	case "", Take:
		a.Decision, err = r.decide(meter.OpTake, op.Cost)
	case Peek:
		a.Decision, err = r.decide(meter.OpPeek, op.Cost)
	case TakeUpTo:
		a.Decision, err = r.decide(meter.OpTakeUpTo, op.Cost)
	case Reserve:
		a.Decision, a.Reservation, err = r.reserve(op)
	case Refund:
		a.Decision, err = r.store.Refund(ctx, r.layers, op.Cost)
	case Reset:
		err = r.store.Reset(ctx, r.layers)
	default:
		err = fmt.Errorf("unknown op %q: %s", op.Verb, verbs)
	}
	return err
}

func (r *Runner) change(op Op) error {
	var texts []string
	for _, l := range op.Limits {
		texts = append(texts, l.Limit)
	}
	return r.setLimits(texts)
}

func (r *Runner) arrange(op Op) error {
	switch {
	case len(op.Limits) > 0:
	case len(r.bounds) == 0:
		return errors.New(`no limits: give some to all lines, or "limits" to this one`)
	case op.NoKey:
		return errNoKey
	default:
		r.all(op.Key)
		return nil
	}
	clear(r.layers)
	r.layers = r.layers[:0]
	for _, l := range op.Limits {
		bound, err := r.bind(l.Limit)
		if err != nil {
			return err
		}
		r.layers = append(r.layers, stint.Layer{Bound: bound, Key: l.Key})
	}
	return nil
}

func (r *Runner) all(key string) {
	clear(r.layers)
	r.layers = r.layers[:0]
	for _, bound := range r.bounds {
		r.layers = append(r.layers, stint.Layer{Bound: bound, Key: key})
	}
}

func (r *Runner) textsOf(op Op) []string {
	if len(op.Limits) == 0 {
		return r.texts
	}
	texts := make([]string, len(op.Limits))
	for i, l := range op.Limits {
		texts[i] = l.Limit
	}
	return texts
}

func (r *Runner) decide(what meter.Op, cost int64) (stint.Decision, error) {
	if len(r.layers) == 1 {
		return r.layers[0].Bound.Decide(context.Background(), what, r.layers[0].Key, cost)
	}
	return r.store.Decide(context.Background(), what, r.layers, cost)
}

const defaultTTL = time.Minute

func (r *Runner) reserve(op Op) (d stint.Decision, name string, err error) {
	ttl := op.TTL
	if ttl == 0 {
		ttl = defaultTTL
	}
	for i := range r.layers {
		r.layers[i].Excuses = op.Excuses
	}
	d, id, err := r.store.Reserve(context.Background(), r.layers, op.Cost, ttl)
	if err != nil || !d.Allowed {
		return d, "", err
	}
	name = "r" + strconv.Itoa(len(r.reservations)+1)
	r.reservations[name] = &reservation{id: id, layers: append([]stint.Layer(nil), r.layers...), texts: r.textsOf(op)}
	return d, name, nil
}

// settle answers for an expired reservation with the present state, and for a settled one with its
// first answer.
func (r *Runner) settle(op Op) (stint.Decision, error) {
	res := r.reservations[op.Reservation]
	if res == nil {
		return stint.Decision{}, fmt.Errorf("unknown reservation %q", op.Reservation)
	}
	cost := op.Cost
	if op.Verb == Cancel {
		cost = 0
	}
	d, err := r.store.Settle(context.Background(), res.id, cost)
	switch {
	case err == nil:
		res.settled, res.answer = true, d
	case !errors.Is(err, stint.ErrReservation):
	case res.settled:
		return res.answer, nil
	default:
		return r.store.Decide(context.Background(), meter.OpPeek, res.layers, 0)
	}
	return d, err
}
