package redisstore

import "github.com/redis/rueidis"

// DriverOf returns the driver of a client, for tests to stand in front of.
func DriverOf(c rueidis.Client) Driver { return rueidisDriver{c} }

// Sweep does what the keeper of modes does, which a virtual clock does not have.
func (s *Store) Sweep() { s.modes.sweep(false) }

// NodeClock returns the clock that leases end by.
func NodeClock() func() int64 { return newNodeClock().now }

// Held returns for how many keys a node has something in hand.
func (s *Store) Held() int64 { return s.modes.held.Load() }

// Denials returns how many denials of requests with several limits are kept.
func (s *Store) Denials() (n int) {
	for i := range s.modes.denied.table.shards {
		n += len(s.modes.denied.table.shards[i].all)
	}
	return n
}
