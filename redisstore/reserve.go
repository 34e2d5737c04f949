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

// about is what Redis keeps of one limit of a reservation, so that any process can settle
// it.
type about struct {
	Limit  string `json:"limit"`
	Name   string `json:"name"`
	Begin  []byte `json:"begin"`
	End    []byte `json:"end,omitempty"`
	Weight int64  `json:"weight,omitempty"`
	// Behind is how many limits before it in the request are missing here, because
	// they are in other slots.
	Behind int `json:"behind,omitempty"`
}

// Reserve implements [stint.Store]. The ID has 130 random bits, and the slot of a cluster
// that the layers are in.
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
	if err := s.ofLayers(parts, layers); err != nil {
		return stint.Decision{}, "", err
	}
	return s.reserveParts(ctx, parts, reserving{cost: cost, ttl: ttl, age: -1})
}

// reserveParts is Reserve of layers without modes.
func (s *Store) reserveParts(ctx context.Context, parts []part, r reserving) (stint.Decision, stint.ReservationID, error) {
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

// ofLayers copies to each part what its layer says: how long the reservation excuses denials, and the
// key of the record that it raises.
func (s *Store) ofLayers(parts []part, layers []stint.Layer) (err error) {
	i := 0
	for _, layer := range layers {
		for range layer.Bound.(*bound).limits {
			if parts[i].excuse = layer.Excuses; layer.Raises != "" {
				if parts[i].raises, err = s.recordIn(slotOf(parts[i].begin), layer.Raises); err != nil {
					return err
				}
			}
			i++
		}
	}
	return nil
}

// recordIn returns the key of the record that a reservation has in a slot.
func (s *Store) recordIn(slot uint16, all stint.ReservationID) (string, error) {
	for one := range strings.SplitSeq(string(all), idJoint) {
		if id, of, err := parseID(stint.ReservationID(one)); err == nil && of == slot {
			return s.names.reservation(id, slot), nil
		}
	}
	return "", stint.ErrReservation
}

// A reserving says what to reserve: a cost, for how long, and whether in several slots.
type reserving struct {
	cost  int64
	ttl   time.Duration
	age   time.Duration // how long ago a waiter's turn may have been; below 0 for other requests
	apart bool
}

// asked returns the cost in the form that the script takes.
func (r reserving) asked() string {
	if r.age < 0 {
		return number(r.cost)
	}
	return number(r.cost) + "@" + number(int64(r.age/time.Microsecond))
}

// reserve makes a reservation of layers in one slot. The ID is "" if it is denied.
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
	if r.apart { // Settle first asks all of its slots
		text = append(text, '&')
		for _, key := range more[:len(parts)] {
			text = fmt.Append(text, len(key), ":", key)
		}
	}
	whole := stint.ReservationID(fmt.Sprintf("%s-%04x", id, slot))
	a, err := s.longAnswer(ctx, parts, more, "r", r.asked(), micros(int64(r.ttl)), id, string(text))
	switch {
	case errors.Is(err, ErrAmbiguous):
		return nil, "", &stint.LostReservation{ID: whole, Err: err}
	case err != nil || !a.allowed():
		return a, "", err
	}
	return a, whole, nil
}

// reserved returns the keys of a reservation, beside those of the states.
func (s *Store) reserved(parts []part, id string, slot uint16) []string {
	keys := make([]string, 0, len(parts)+1)
	for i := range parts {
		keys = append(keys, opens(parts[i].begin, parts[i].end, parts[i].limit))
	}
	return append(keys, s.names.reservation(id, slot))
}

// parseID splits an ID into the ID in Redis and the slot.
func parseID(reservation stint.ReservationID) (id string, slot uint16, err error) {
	id, hex, ok := strings.Cut(string(reservation), "-")
	n, err := strconv.ParseUint(hex, 16, 16)
	if !ok || err != nil || n >= slots || len(hex) != 4 || len(id) != len(rand.Text()) {
		return "", 0, stint.ErrReservation
	}
	return id, uint16(n), nil
}

// Settle implements [stint.Store]. It takes two round trips: the first asks which limits
// the reservation has, so that any process can settle it. Of a reservation in several slots,
// each round trip asks all slots at once.
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
	if err != nil { // if the reservation is gone in one slot, none is settled
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

// atOnce calls do n times at once. Of several errors it returns one, an ambiguous one if there
// is any.
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

// inPart makes an error ambiguous, if it says that nothing was done and other calls of the
// same operation were done.
func inPart(err error, done bool) error {
	if !done || !errors.Is(err, ErrNotExecuted) && !errors.Is(err, ErrConfiguration) && !errors.Is(err, stint.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: done in part: %v", ErrAmbiguous, err) //nolint:errorlint // what is inside may say that nothing was charged: the class is the first one alone
}

// An openReservation is the record of a reservation in one slot: its limits, or the answer
// to its settlement.
type openReservation struct {
	id     string
	slot   uint16
	record []any
}

// findReservation reads the record of a reservation in one slot.
func (s *Store) findReservation(ctx context.Context, id stint.ReservationID) (r openReservation, err error) {
	if r.id, r.slot, err = parseID(id); err != nil {
		return r, err
	}
	err = s.eval(ctx, []string{s.names.reservation(r.id, r.slot)}, s.clock([]string{"a"}), func(reply any) error {
		if reply == nil {
			return stint.ErrReservation
		}
		if r.record, _ = reply.([]any); len(r.record) != 3 {
			return unexpected(reply)
		}
		return nil
	})
	return r, err
}

// settleFound settles a reservation in one slot, and returns its parts.
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
	case asked.before != nil: // another process settled it just now
		return settledBefore(asked.before)
	}
	return asked.answer, parts, nil
}

// metaOf writes what it takes to read the answers of parts: weight, index and capacity.
func metaOf(parts []part) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprint(&b, p.weight, ":", p.at, ":", p.compiled.capacity, ",")
	}
	return b.String()
}

// settledBefore reads the record of a reservation that was settled before.
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

// recall returns the parts of a reservation, with the limits that it was made under.
func (s *Store) recall(text string) ([]part, error) {
	var all []about
	text, _, _ = strings.Cut(text, "&") // this JSON has no &
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
	return s.operate(ctx, layers, []string{"d"}, func(p *part) []string {
		return []string{state(p.begin, p.end, p.limit), opens(p.begin, p.end, p.limit), banOf(p.begin, p.end, p.limit)}
	})
}

// Block implements [stint.BlockStore].
func (s *Store) Block(ctx context.Context, layers []stint.Layer, d time.Duration) error {
	if of, ok := s.modes.ofModes(layers); ok {
		return s.modes.Block(ctx, of, d)
	}
	args, named := []string{"d"}, banOf
	if d > 0 {
		args, named = s.clock([]string{"b", micros(int64(d))}), state
	}
	return s.operate(ctx, layers, args, func(p *part) []string {
		if p.compiled.limit.Ban() == 0 {
			return nil
		}
		return []string{named(p.begin, p.end, p.limit)}
	})
}

// operate makes a call in each slot, on the keys that the parts there have.
func (s *Store) operate(ctx context.Context, layers []stint.Layer, args []string, keysOf func(*part) []string) error {
	parts, err := s.request(nil, layers)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	defer s.modes.returns.note(parts)
	slots := make(map[uint16][]string)
	for i := range parts {
		slot := s.region(parts[i].begin)
		slots[slot] = append(slots[slot], keysOf(&parts[i])...)
	}
	for _, keys := range slots {
		if len(keys) == 0 {
			continue
		}
		if err := s.eval(ctx, keys, args, unread); err != nil {
			return err
		}
	}
	return nil
}
