package redisstore

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/stint-dev/stint"
)

// Dial connects as for a URL, by the addresses that names have at a resolver.
func Dial(ctx context.Context, at *net.Resolver, address string) (net.Conn, error) {
	d := &dialer{net: net.Dialer{Resolver: at}}
	return d.dial(ctx, "tcp", address)
}

// Checked returns a connection whose replies have bounds, in bytes.
func Checked(conn net.Conn, most int) net.Conn { return checked(conn, most) }

// MaxInFlight is how many calls are on their way before requests wait, MostTogether
// how many of these travel as one.
const MaxInFlight, MostTogether = maxInFlight, maxBatch

// Few is how many requests on their way to a node of a cluster keep another call
// from leaving.
const Few = few

// Waiting returns how many requests wait for a batch, on the slow path or the fast
// one.
func (s *Store) Waiting(long bool) (n int) {
	all := []*batcher{s.batchers.of(batcherOf{long: long})}
	s.batchers.mu.Lock()
	for which, b := range s.batchers.slot {
		if which.long == long {
			all = append(all, b)
		}
	}
	s.batchers.mu.Unlock()
	for _, b := range all {
		b.mu.Lock()
		n += len(b.queue)
		b.mu.Unlock()
	}
	return n
}

// Numbers is the script's arithmetic, for a test to run by itself.
func Numbers() string {
	source, _ := assemble("numbers")
	return source
}

// Source is the script.
var Source = source

// OneCell has newcomers of one tag share one cell.
func (s *Store) OneCell() {
	s.names = newNames(s.names.prefix, s.names.tag, s.names.secret, overflowCells)
}

// Slot and Filler are those of a cluster.
var Slot, Filler = slotOf, filler

// State returns the key of the state of a client's key under a limit.
func State(o Options, key, limit string) string {
	n := newNames(o.Prefix, o.Tag, o.HashSecret, tags)
	begin, end := n.around(key)
	return begin + escape(limit) + end
}

// StateOf returns the key of the state of a client's key under the first of
// limits that are bound.
func StateOf(o Options, key string, b stint.Bound) string {
	return State(o, key, stateName(b.Name(), b.Limits()[0]))
}

// Breaker is what stands in front of calls; MostProbes how many probes are on
// their way at once.
type Breaker = breaker

const MostProbes = mostProbes

// Lets reports whether calls are made.
func (b *breaker) Lets() bool { return b.lets() }

// Ended says how a call ended: good, bad, or neither; probe whether the caller has
// to try from now on.
func (b *breaker) Ended(good, bad bool) (probe bool) { return b.ended(healthOf(good, bad), 0) }

func healthOf(good, bad bool) health {
	switch {
	case good:
		return healthGood
	case bad:
		return healthBad
	}
	return healthUnknown
}

// KnowsNodes reports whether it is known which node of a cluster serves which
// slots; NodeName names the node of one.
func (s *Store) KnowsNodes() bool { return s.nodes.slots.Load() != nil }

// NodeName returns what is the same for slots of one node.
func (s *Store) NodeName(slot uint16) string { return fmt.Sprintf("%p", s.nodeOf(slot)) }

// Sweep does what the keeper of modes does, which a virtual clock does not have.
func (s *Store) Sweep() { s.modes.sweep(false) }

// NodeClock returns the clock that leases end by.
func NodeClock() func() int64 { return newNodeClock().now }

// Held returns for how many keys a node has something in hand.
func (s *Store) Held() int64 { return s.modes.heldKeys.Load() }

// DeniedKeys returns how many denials of a limit that was bound in a mode are kept, and
// the longest name by which one is.
func DeniedKeys(b stint.Bound) (n, longest int) {
	d := b.(*modeBound).all[0].denied
	for i := range d.table.shards {
		for key := range d.table.shards[i].all {
			n, longest = n+1, max(longest, len(key))
		}
	}
	return n, longest
}

// RenewNewKeys forgets the keys that came into being within the last second.
func (s *Store) RenewNewKeys() { s.newKeys.full.Store(0) }

// Flood spends the budget for new keys for good.
func (s *Store) Flood() { s.byRoom, s.newKeys.unit = false, 2*int64(newKeysWindow) }

// Cells is how many overflow keys a limit has at most outside of clusters.
const Cells = overflowCells

// Begins returns how the names of a key begin, with the given number of tags.
func Begins(tags int) func(key string) string {
	n := newNames("p", nil, nil, tags)
	return func(key string) string {
		begin, _ := n.around(key)
		return begin
	}
}

// ChargeMarked charges a layer so that it can be given back, as one of the groups of a
// request on several nodes is, and returns where it went.
func (s *Store) ChargeMarked(layer stint.Layer, cost int64) (allowed bool, marks []string, err error) {
	parts, err := s.request(nil, []stint.Layer{layer})
	if err != nil {
		return false, nil, err
	}
	a := s.answerGroup(context.Background(), parts, "k", cost)
	return a.err == nil && a.allowed(), a.marks, a.err
}

// GiveBack gives back what ChargeMarked has charged.
func (s *Store) GiveBack(layer stint.Layer, cost int64, marks []string) error {
	parts, err := s.request(nil, []stint.Layer{layer})
	if err != nil {
		return err
	}
	return s.longPath(context.Background(), parts, nil, "y", append([]string{number(cost)}, marks...)...).err
}

// KnownShares is how many limits of mode Share are known.
func (s *Store) KnownShares() int {
	s.modes.mu.Lock()
	defer s.modes.mu.Unlock()
	return len(s.modes.shares.all)
}

// CompareRulesEvery is how often a process says which rules it has.
func (s *Store) CompareRulesEvery(every time.Duration) { s.heart.rulesEvery = every }

// MostRenewing is how many keys are renewed at once.
const MostRenewing = mostRenewing

// RenewFlights renews what is in flight, as the beat does.
func (s *Store) RenewFlights() { s.flights.renew(s.life) }

// CallingFlights returns for how many keys in flight calls are being made.
func (s *Store) CallingFlights() (n int) {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	for _, one := range s.flights.keys {
		if one.calling {
			n++
		}
	}
	return n
}

// AskingFlights returns how many requests wait for a call of their key to leave.
func (s *Store) AskingFlights() (n int) {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	for _, one := range s.flights.keys {
		n += len(one.waiting)
	}
	return n
}

// Flights returns for how many keys calls may be needed.
func (s *Store) Flights() int {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	return len(s.flights.keys)
}
