package fallback

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/stint-dev/stint"
)

// A Charger is a shared store that charges many keys with one call. [Debts] are posted
// in this way to a store that is a Charger, and otherwise key by key.
type Charger interface {
	// Charge charges each key with its units, whether there is room or not. A
	// second call with the same id within ChargeFor charges no key twice; it may
	// leave out charges, which must then stay left out. An error says that some
	// charges may not have been made: the caller sends all of them again.
	Charge(ctx context.Context, id string, charges []Charge) error
}

// ChargeFor is how long a [Charger] remembers an id, from its last call on.
const ChargeFor = 10 * time.Minute

// A Charge is what a key owes under one limit.
type Charge struct {
	Bound stint.Bound // of one limit
	Key   string
	Units int64
}

const (
	mostTogether = 512           // keys in a posting
	postingLife  = ChargeFor / 2 // until it is no longer sure that it is remembered
)

// A posting is charges that are sent together, until they are known to have been
// made.
type posting struct {
	id      string
	who     []debtor
	charges []Charge
	begun   time.Time // when it may have been done first
	maybe   bool      // it may have been
}

// forget leaves out what a key owes.
func (p *posting) forget(who debtor) {
	if i := slices.Index(p.who, who); i >= 0 {
		p.who, p.charges = slices.Delete(p.who, i, i+1), slices.Delete(p.charges, i, i+1)
	}
}

// postAll charges what all of these owe, posting after posting, and gives up
// where the shared store fails.
func (d *Debts) postAll(to Charger, all []debtor) {
	if d.pending != nil && !d.send(to) {
		return
	}
	for batch := range slices.Chunk(all, mostTogether) {
		d.pending = d.collect(batch)
		if len(d.pending.charges) == 0 {
			d.pending = nil
		} else if !d.send(to) {
			return
		}
	}
}

// collect makes a posting of what some keys owe, as far as it still counts. What
// is added from here on is a further debt.
func (d *Debts) collect(some []debtor) *posting {
	p := &posting{id: rand.Text()}
	d.mu.Lock()
	d.dropped = nil
	d.mu.Unlock()
	for _, who := range some {
		d.mu.Lock()
		one := d.owed[who]
		if one == nil {
			d.mu.Unlock()
			continue
		}
		lenders, units := slices.Clone(one.lenders), one.units
		d.mu.Unlock()
		counts, shared := counting(lenders, who.key)
		counts = min(counts, units)
		d.mu.Lock()
		if d.owed[who] == one {
			if one.units -= units; counts > 0 {
				p.who = append(p.who, who)
				p.charges = append(p.charges, Charge{shared, who.key, counts})
			} else if one.units == 0 {
				delete(d.owed, who)
			}
		}
		d.mu.Unlock()
	}
	return p
}

// send sends what is pending, and reports whether that is settled: charged, or
// given up, because whether it was charged can no longer be found out.
func (d *Debts) send(to Charger) bool {
	p := d.pending
	d.mu.Lock()
	for _, who := range d.dropped {
		p.forget(who)
	}
	d.dropped = nil
	d.mu.Unlock()
	if p.maybe && time.Since(p.begun) > postingLife {
		d.settled(p, false)
		return true
	}
	begun := time.Now()
	err := to.Charge(d.done, p.id, p.charges)
	if err != nil && !lasting(err) {
		if !p.maybe && errors.Is(err, stint.ErrAmbiguous) {
			p.maybe, p.begun = true, begun
		}
		return false
	}
	d.settled(p, err == nil)
	return true
}

// settled takes a posting off the books.
func (d *Debts) settled(p *posting, charged bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending = nil
	for i, who := range p.who {
		units := uint64(p.charges[i].Units)
		if charged {
			d.posted += units
		} else {
			d.forgiven += units
		}
		if one := d.owed[who]; one != nil && one.units == 0 {
			delete(d.owed, who)
		}
	}
}
