package plan

import "io"

// SetMostEvents sets how many events are kept, and returns what puts it back.
func SetMostEvents(n int) (restore func()) {
	before := mostEvents
	mostEvents = n
	return func() { mostEvents = before }
}

// SetOpenPipe sets what opens pipes by their names, and returns what puts it back.
func SetOpenPipe(open func(string) (io.ReadCloser, error)) (restore func()) {
	before := openPipe
	openPipe = open
	return func() { openPipe = before }
}
