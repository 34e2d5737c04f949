package stint

// Waiting returns how many stand in l's lines, and in how many lines, so that
// tests see that nothing is left.
func (l *Limiter) Waiting() (waiters, keys int) { return l.lines.Waiting() }
