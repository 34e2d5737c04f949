package stint

// Waiting returns how many stand in l's lines, and in how many lines, so that
// tests see that nothing is left.
func (l *Limiter) Waiting() (waiters, keys int) {
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	for _, ln := range l.lines.byKey {
		waiters += ln.held.Len()
		for w := ln.first; w != nil; w = w.next {
			waiters++
		}
	}
	return waiters, len(l.lines.byKey)
}
