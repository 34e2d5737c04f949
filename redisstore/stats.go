package redisstore

// Stats is what a store tells of itself.
type Stats struct {
	// Open is how many breakers keep calls from servers that do not answer: at
	// most one where there is one server, one for each 256 slots of a cluster.
	Open int
	// Calls is how many calls are on their way.
	Calls int64
	// Held is how many keys have something in hand or not yet sent, in modes
	// Lease and Async.
	Held int64
	// Overflowed is how many decisions were made on overflow keys, because
	// Options.NewKeys was spent. While it grows, new keys are not decided
	// exactly.
	Overflowed uint64
}

// Stats returns what the store is doing now.
func (s *Store) Stats() Stats {
	st := Stats{Calls: s.calls.Load(), Held: s.modes.held.Load(), Overflowed: s.shared.Load()}
	for i := range s.breakers {
		b := &s.breakers[i]
		if !b.trouble.Load() {
			continue
		}
		b.mu.Lock()
		if b.open {
			st.Open++
		}
		b.mu.Unlock()
	}
	return st
}
