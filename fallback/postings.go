package fallback

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
)

// A Charger is a shared store that charges many keys with one call. Debts are posted to a Charger
// in postings of many keys, and to other stores key by key ([keyByKey]).
type Charger interface {
	// Charge charges each key with its units, whether there is room or not. No key comes twice
	// under one limit.
	//
	// A repeated call with the same id within ChargeFor charges no key twice. It may leave out
	// charges, which must stay left out.
	//
	// An error is the error of all charges, unless it is a [ChargeError]. After
	// [stint.ErrAmbiguous] a charge may have been made, and the caller repeats it under the id.
	// After other errors the charge was not made, and is owed as before.
	Charge(ctx context.Context, id string, charges []Charge) error
}

// ChargeFor is how long a [Charger] remembers an id, counted from the first call that charged
// something.
const ChargeFor = 10 * time.Minute

// A Charge is what a key owes under one limit.
type Charge struct {
	Bound stint.Bound // has one limit
	Key   string
	Units int64
}

// A ChargeError is the error of a [Charger] that has made some charges and not others, for example
// because the keys are on several servers.
type ChargeError struct {
	// Each has the error of each charge, in their order; nil if it was made.
	Each []error
}

// Error returns each different error once, on a line of its own.
func (e *ChargeError) Error() string {
	var all []string
	for _, err := range e.Each {
		if err != nil && !slices.Contains(all, err.Error()) {
			all = append(all, err.Error())
		}
	}
	return strings.Join(all, "\n")
}

// Unwrap returns the errors of the charges that were not made.
func (e *ChargeError) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(e.Each), func(err error) bool { return err == nil })
}

const (
	mostTogether = 512           // keys in a posting
	mostFailed   = 4             // postings that may fail in a round before the round stops
	postingLife  = ChargeFor / 2 // after it, the shared store may have forgotten the id
)

// A posting is charges that are sent together, until it is known which of them were made.
type posting struct {
	id    string
	all   []posted
	begun time.Time // when it was first sent and may have been charged
	maybe bool      // it may have been charged
}

// A posted is one key's charge in a posting.
type posted struct {
	who debtor
	one *debt
	Charge
}

// postAll charges what these debtors owe, posting after posting, and stops where the shared store
// fails. Where one server of several cannot charge its keys, the others still charge theirs.
func (d *Debts) postAll(all []debtor) {
	failed, probes := 0, map[debtor]stint.Bound{}
	before := d.pending
	d.pending = nil
	for i, p := range before {
		if failed == mostFailed {
			d.pending = append(d.pending, before[i:]...)
			break
		}
		if !d.send(p, probes) {
			failed++
		}
	}
	for batch := range slices.Chunk(all, mostTogether) {
		if failed == mostFailed {
			return
		}
		if p := d.collect(batch, probes); len(p.all) > 0 && !d.send(p, probes) {
			failed++
		}
	}
}

// collect makes a posting of what some debtors owe, as far as it still counts. Units added from now
// on are a new debt.
func (d *Debts) collect(some []debtor, probes map[debtor]stint.Bound) *posting {
	p := &posting{id: rand.Text()}
	for _, who := range some {
		d.mu.Lock()
		one := d.owed[who]
		if one == nil || one.units == 0 {
			d.mu.Unlock()
			continue
		}
		was := *one
		d.mu.Unlock()
		counts := d.counting(&was, who.key, probes)
		d.mu.Lock()
		if d.owed[who] == one {
			one.units -= was.units
			if counts = min(counts, was.units); counts > 0 {
				one.away++
				p.all = append(p.all, posted{who, one, Charge{was.shared, who.key, counts}})
			}
			d.drop(who, one)
		}
		d.mu.Unlock()
	}
	return p
}

// drop removes a debt that has no units left. The lock is held.
func (d *Debts) drop(who debtor, one *debt) {
	if one.units == 0 && one.away == 0 && d.owed[who] == one {
		delete(d.owed, who)
	}
}

// send sends a posting, and reports whether any of it was charged. Charges that were certainly not
// made are owed as before. Those that may have been made stay pending until the shared store may
// have forgotten the id.
func (d *Debts) send(p *posting, probes map[debtor]stint.Bound) bool {
	d.lessen(p, probes)
	if len(p.all) == 0 {
		return true
	}
	if p.maybe && time.Since(p.begun) > postingLife {
		d.settled(p, func(int) error { return errForgiven })
		return true
	}
	charges := make([]Charge, len(p.all))
	for i := range p.all {
		charges[i] = p.all[i].Charge
	}
	begun := time.Now()
	err := d.charger.Charge(d.done, p.id, charges)
	each := func(int) error { return err }
	var partial *ChargeError
	if errors.As(err, &partial) && len(partial.Each) == len(charges) {
		each = func(i int) error { return partial.Each[i] }
	}
	if !p.maybe {
		p.begun = begun
	}
	left := d.settled(p, each)
	if left {
		d.pending = append(d.pending, p)
	}
	return err == nil || partial != nil && slices.Contains(partial.Each, nil) || lasting(err)
}

// lessen leaves out units that no longer count, and debts that were dropped, so that nobody is
// charged for units that aged out while the store did not answer.
func (d *Debts) lessen(p *posting, probes map[debtor]stint.Bound) {
	for i := range p.all {
		if !p.maybe {
			break // it was collected just now
		}
		c := &p.all[i]
		d.mu.Lock()
		was := *c.one
		d.mu.Unlock()
		c.Units = min(c.Units, d.counting(&was, c.who.key, probes))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(c posted) bool {
		gone := c.Units == 0 || d.owed[c.who] != c.one
		if gone {
			c.one.away--
			d.drop(c.who, c.one)
		}
		return gone
	})
}

// errForgiven is the error of a charge when it can no longer be found out whether it was made.
var errForgiven = fmt.Errorf("fallback: forgiven: %w", stint.ErrClosed)

// settled books the outcome of each charge of a posting, and reports whether some are still
// unknown.
func (d *Debts) settled(p *posting, each func(i int) error) (left bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var stay []posted
	for i, c := range p.all {
		switch err := each(i); {
		case err == nil:
			d.posted += uint64(c.Units)
		case lasting(err):
			d.forgiven += uint64(c.Units)
		case p.maybe || errors.Is(err, stint.ErrAmbiguous):
			stay = append(stay, c)
			continue
		default: // not charged, so it is owed again
			c.one.units += min(c.Units, math.MaxInt64-c.one.units)
		}
		c.one.away--
		d.drop(c.who, c.one)
	}
	p.all, p.maybe = stay, true
	return len(stay) > 0
}

// A keyByKey charges a store that is no [Charger]: it reserves a cost of 0 and settles the
// reservation at the units of the key. A settlement can be repeated, and counts once.
type keyByKey struct {
	shared stint.Store
	tried  map[string]stint.ReservationID // of charges that may have been made, by posting and key
}

const chargeWithin = time.Minute // how long a reservation lasts

var errNotTried = errors.New("fallback: not tried, since the store failed")

// Charge implements [Charger], for one caller at a time.
func (k *keyByKey) Charge(ctx context.Context, id string, charges []Charge) error {
	each, failed, gone := make([]error, len(charges)), false, false
	for i, c := range charges {
		if gone {
			each[i] = errNotTried
			continue
		}
		name := fmt.Sprintf("%s %q %q %q", id, c.Bound.Name(), c.Bound.Limits()[0].ID(), c.Key)
		token, again := k.tried[name]
		var err error
		if !again {
			_, token, err = k.shared.Reserve(ctx, []stint.Layer{{Bound: c.Bound, Key: c.Key}}, 0, chargeWithin)
		}
		if err == nil {
			_, err = k.shared.Settle(ctx, token, c.Units)
			delete(k.tried, name)
			if errors.Is(err, stint.ErrAmbiguous) || again && err != nil && !lasting(err) {
				if k.tried == nil {
					k.tried = map[string]stint.ReservationID{}
				}
				k.tried[name] = token
			}
		}
		each[i], failed, gone = err, failed || err != nil, err != nil && !lasting(err)
	}
	if failed {
		return &ChargeError{Each: each}
	}
	return nil
}
