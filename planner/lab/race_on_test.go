//go:build race

package lab_test

// racing says that the race detector is on, under which all is slower: what runs
// long in one goroutine then does less.
const racing = true
