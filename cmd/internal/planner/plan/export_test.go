package plan

import "io"

// SetSpoolMemory sets how much of a spool stays in memory, and returns what
// puts it back.
func SetSpoolMemory(n int64) (restore func()) {
	before := spoolMemory
	spoolMemory = n
	return func() { spoolMemory = before }
}

// SetSortEvents sets how many events a sorter sorts at a time, and returns what
// puts it back.
func SetSortEvents(n int) (restore func()) {
	before := sortEvents
	sortEvents = n
	return func() { sortEvents = before }
}

// SetOpenPipe sets what opens pipes by their names, and returns what puts it back.
func SetOpenPipe(open func(string) (io.ReadCloser, error)) (restore func()) {
	before := openPipe
	openPipe = open
	return func() { openPipe = before }
}

// SetWorthwhile sets for how many requests a block only some of a log is read, and
// returns what puts it back.
func SetWorthwhile(n int) (restore func()) {
	before := worthwhile
	worthwhile = n
	return func() { worthwhile = before }
}
