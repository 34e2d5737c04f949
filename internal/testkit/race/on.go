//go:build race

// Package race says whether the race detector is on, under which all is ten times as
// slow and more is allocated. Tests of one goroutine, in which it finds nothing, then
// do a part; make test runs them whole without it.
package race

// On reports whether it is.
const On = true
