package memstore

// SetClock makes a Single go by another clock: nanoseconds since the Unix epoch.
func (s *Single) SetClock(now func() int64) { s.clock.init(now) }
