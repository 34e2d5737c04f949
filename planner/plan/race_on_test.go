//go:build race

package plan_test

// racing says that the race detector is on, under which all is ten times as slow.
// Tests of one goroutine, in which it finds nothing, then do a part; make test runs
// them whole without it.
const racing = true
