package caddylimit

import "time"

// The machine of a test may be busy: no test here is about how long a call may take.
func init() { storeTimeout = 30 * time.Second }

// Counted returns how many servers there are, and the processes that share the
// one counted last.
func Counted() (opened, nodes int) {
	servers.Range(func(_, value any) bool {
		s := value.(*server)
		s.mu.Lock()
		defer s.mu.Unlock()
		opened, nodes = opened+1, s.counted
		return true
	})
	return opened, nodes
}
