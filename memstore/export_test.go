package memstore

// SetClock makes a Single go by another clock: nanoseconds since the Unix epoch.
func (s *Single) SetClock(now func() int64) { s.store.clock.init(now) }

// KnownLimits is Stats.Limits of a store without a look for those to release.
func KnownLimits(s *Store) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, a := range s.list {
		n += a.count()
	}
	return n
}

// LockFree reports whether a Single decides without a lock.
func (s *Single) LockFree() bool { return s.word.Load() != inStore }
