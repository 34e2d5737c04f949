package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint"
)

var errTTL = errors.New("redisstore: a reservation needs a time to live above zero")

// about is what settling needs to know of one limit of a reservation, in
// Redis: keys are bytes.
type about struct {
	Limit  string `json:"limit"`
	Name   string `json:"name"`
	Begin  []byte `json:"begin"`
	End    []byte `json:"end,omitempty"`
	Weight int64  `json:"weight,omitempty"`
	// Behind is how many limits of the request come before it that are not
	// before it here, because they are in other slots.
	Behind int `json:"behind,omitempty"`
}

// Reserve implements [stint.Store]. The ID is 130 random bits and the slot
// of a cluster that the layers are in.
func (s *Store) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	if of, ok := s.modes.ofModes(layers); ok {
		return s.modes.Reserve(ctx, of, cost, ttl)
	}
	switch {
	case ttl <= 0:
		return stint.Decision{}, "", errTTL
	case cost < 0:
		return stint.Decision{}, "", stint.ErrCost
	}
	parts, err := s.request(nil, layers)
	if err != nil {
		return stint.Decision{}, "", err
	}
	r := reserving{cost: cost, ttl: ttl}
	if groups := s.slotGroups(parts); groups != nil {
		r.apart = true
		return s.reserveGroups(ctx, parts, groups, r)
	}
	a, id, err := s.reserve(ctx, parts, r)
	if err != nil {
		return stint.Decision{}, "", err
	}
	return a.join(parts, true), id, nil
}

// A reserving is a cost that is to be reserved, for how long, and whether in
// several slots.
type reserving struct {
	cost  int64
	ttl   time.Duration
	apart bool
}

// reserve takes a reservation of layers that are in one slot; denied, it has no
// ID.
func (s *Store) reserve(ctx context.Context, parts []part, r reserving) (answer, stint.ReservationID, error) {
	all := make([]about, len(parts))
	for i, p := range parts {
		all[i] = about{p.compiled.text, p.limit.name, []byte(p.begin), []byte(p.end), p.weight, p.at - i}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, "", err
	}
	id, slot := rand.Text(), slotOf(parts[0].begin)
	more := s.reserved(parts, id, slot)
	if r.apart { // what is asked before it is settled, in any of its slots
		text = append(text, '&')
		for _, key := range more[:len(parts)] {
			text = fmt.Append(text, len(key), ":", key)
		}
	}
	a, err := s.longAnswer(ctx, parts, more, "r", number(r.cost), micros(int64(r.ttl)), id, string(text))
	if err != nil || !a.allowed() {
		return a, "", err
	}
	return a, stint.ReservationID(fmt.Sprintf("%s-%04x", id, slot)), nil
}

// reserved returns the keys of a reservation beside the states.
func (s *Store) reserved(parts []part, id string, slot uint16) []string {
	keys := make([]string, 0, len(parts)+1)
	for i := range parts {
		keys = append(keys, opens(parts[i].begin, parts[i].end, parts[i].limit))
	}
	return append(keys, s.names.reservation(id, slot))
}

// parseID returns what an ID names.
func parseID(reservation stint.ReservationID) (id string, slot uint16, err error) {
	id, hex, ok := strings.Cut(string(reservation), "-")
	n, err := strconv.ParseUint(hex, 16, 16)
	if !ok || err != nil || n >= slots || len(hex) != 4 || len(id) != len(rand.Text()) {
		return "", 0, stint.ErrReservation
	}
	return id, uint16(n), nil
}

// Settle implements [stint.Store]. It takes two round trips: the first asks
// what the reservation is of, so that any process can settle it. Of one in several
// slots all are asked at once, each time.
func (s *Store) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	if strings.HasPrefix(string(id), sharePrefix) {
		return s.modes.Settle(ctx, id, cost)
	}
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	if s.closed.Load() {
		return stint.Decision{}, stint.ErrClosed
	}
	all := strings.SplitN(string(id), idJoint, stint.MaxLimits+1)
	for _, one := range all {
		if _, _, err := parseID(stint.ReservationID(one)); err != nil {
			return stint.Decision{}, err
		}
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	open := make([]openReservation, len(all))
	err := atOnce(len(all), func(k int) (err error) {
		open[k], err = s.findReservation(ctx, stint.ReservationID(all[k]))
		return err
	})
	if err != nil { // of one that is gone nothing is settled, in any slot
		return stint.Decision{}, err
	}
	answered, of := make([]answer, len(all)), make([][]part, len(all))
	err = atOnce(len(all), func(k int) (err error) {
		answered[k], of[k], err = s.settleFound(ctx, open[k], cost)
		return err
	})
	if err != nil {
		return stint.Decision{}, inPart(err, slices.ContainsFunc(answered, func(a answer) bool { return a != nil }))
	}
	parts, answers := of[0], answered[0]
	for k := 1; k < len(all); k++ {
		parts, answers = append(parts, of[k]...), append(answers, answered[k][1:]...)
	}
	return answers.join(parts, false), nil
}

// atOnce does n things at once. The error is one of those that there were,
// ambiguous if any was.
func atOnce(n int, do func(k int) error) (failed error) {
	errs := make([]error, n)
	var others sync.WaitGroup
	for k := 1; k < n; k++ {
		others.Go(func() { errs[k] = do(k) })
	}
	errs[0] = do(0)
	others.Wait()
	for _, err := range errs {
		if err != nil && (failed == nil || errors.Is(err, ErrAmbiguous)) {
			failed = err
		}
	}
	return failed
}

// inPart returns an error of which it is told that nothing was done, as one of what was
// done in part.
func inPart(err error, done bool) error {
	if !done || !errors.Is(err, ErrNotExecuted) && !errors.Is(err, ErrConfiguration) && !errors.Is(err, stint.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: done in part: %v", ErrAmbiguous, err) //nolint:errorlint // what is inside may say that nothing was charged: the class is the first one alone
}

// An openReservation is what Redis has of a reservation of one slot: what settling
// it needs to know, or how it was settled.
type openReservation struct {
	id     string
	slot   uint16
	record []any
}

// findReservation asks for a reservation of one slot.
func (s *Store) findReservation(ctx context.Context, id stint.ReservationID) (r openReservation, err error) {
	if r.id, r.slot, err = parseID(id); err != nil {
		return r, err
	}
	reply, err := s.eval(ctx, []string{s.names.reservation(r.id, r.slot)}, s.clock([]string{"a"}))
	if err != nil {
		return r, err
	}
	if reply == nil {
		return r, stint.ErrReservation
	}
	if r.record, _ = reply.([]any); len(r.record) != 3 {
		return r, unexpected(reply)
	}
	return r, nil
}

// settleFound settles a reservation of one slot, and says what it was of.
func (s *Store) settleFound(ctx context.Context, r openReservation, cost int64) (answer, []part, error) {
	if r.record[0] == "s" {
		return settledBefore(r.record)
	}
	text, _ := r.record[1].(string)
	digits, _ := r.record[2].(string)
	parts, err := s.recall(text)
	if err != nil {
		return nil, nil, err
	}
	more := s.reserved(parts, r.id, r.slot)
	named := slices.Clone(parts)
	s.toCells(parts, digits)
	asked := s.longPath(ctx, parts, more, "s", number(cost), r.id, metaOf(parts))
	s.modes.returns.note(named)
	switch {
	case asked.err != nil:
		return nil, nil, asked.err
	case asked.before != nil: // by another process, just now
		return settledBefore(asked.before)
	}
	return asked.answer, parts, nil
}

// metaOf says of parts what reading their answers needs: weight, place and capacity.
func metaOf(parts []part) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprint(&b, p.weight, ":", p.at, ":", p.compiled.capacity, ",")
	}
	return b.String()
}

// settledBefore reads what is kept of a reservation that has been settled.
func settledBefore(record []any) (answer, []part, error) {
	meta, _ := record[1].(string)
	digits, _ := record[2].(string)
	var parts []part
	for one := range strings.SplitSeq(strings.TrimSuffix(meta, ","), ",") {
		p := part{compiled: &compiled{}}
		if _, err := fmt.Sscanf(one, "%d:%d:%d", &p.weight, &p.at, &p.compiled.capacity); err != nil {
			return nil, nil, unexpected(record)
		}
		parts = append(parts, p)
	}
	var a answer
	for _, text := range strings.Fields(digits) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, nil, unexpected(record)
		}
		a = append(a, n)
	}
	if len(a) != 1+answersEach*len(parts) {
		return nil, nil, unexpected(record)
	}
	return a, parts, nil
}

// recall returns the limits of a reservation, as they were then.
func (s *Store) recall(text string) ([]part, error) {
	var all []about
	text, _, _ = strings.Cut(text, "&") // which JSON has none of
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) == 0 {
		return nil, fmt.Errorf("%w: a reservation that is none of this version's", ErrConfiguration)
	}
	parts := make([]part, len(all))
	for i, a := range all {
		s.mu.Lock()
		l := s.limits[a.Name]
		s.mu.Unlock()
		if l == nil {
			l = &limit{name: a.Name, segment: escape(a.Name)}
		}
		f := l.last.Load()
		if f == nil || f.text != a.Limit {
			parsed, err := stint.Parse(a.Limit)
			if err != nil {
				return nil, err
			}
			if f, err = compile(parsed, s.maxLog); err != nil {
				return nil, err
			}
		}
		parts[i] = part{compiled: f, begin: string(a.Begin), end: string(a.End), limit: l, weight: a.Weight, at: i + a.Behind}
	}
	return parts, nil
}

// Refund implements [stint.Store].
func (s *Store) Refund(ctx context.Context, layers []stint.Layer, cost int64) (stint.Decision, error) {
	if of, ok := s.modes.ofModes(layers); ok {
		return s.modes.Refund(ctx, of, cost)
	}
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	parts, err := s.request(nil, layers)
	if err != nil {
		return stint.Decision{}, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	a, all, err := s.each(ctx, parts, s.slotGroups(parts), "f", cost)
	s.modes.returns.note(parts)
	if err != nil {
		return stint.Decision{}, inPart(err, slices.ContainsFunc(all, func(one groupAnswer) bool { return one.err == nil }))
	}
	return a.join(parts, false), nil
}

// Reset implements [stint.Store]. Reservations on the keys are forgotten too.
func (s *Store) Reset(ctx context.Context, layers []stint.Layer) error {
	if of, ok := s.modes.ofModes(layers); ok {
		return s.modes.Reset(ctx, of)
	}
	parts, err := s.request(nil, layers)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	groups := s.slotGroups(parts)
	if groups == nil {
		return s.reset(ctx, parts)
	}
	for _, group := range groups {
		if err := s.reset(ctx, group.of(parts)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) reset(ctx context.Context, parts []part) error {
	keys := make([]string, 0, 3*len(parts))
	for i := range parts {
		p := &parts[i]
		keys = append(keys, state(p.begin, p.end, p.limit), opens(p.begin, p.end, p.limit), banOf(p.begin, p.end, p.limit))
	}
	_, err := s.eval(ctx, keys, []string{"d"})
	s.modes.returns.note(parts)
	return err
}
