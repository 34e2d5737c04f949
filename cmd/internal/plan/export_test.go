package plan

// SetSpoolMemory sets how much of a spool stays in memory, and returns what
// puts it back.
func SetSpoolMemory(n int64) (restore func()) {
	before := spoolMemory
	spoolMemory = n
	return func() { spoolMemory = before }
}
