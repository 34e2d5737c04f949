//go:build race

package adapters_test

// racing says that the race detector is on, under which all is ten times as
// slow: what runs on one goroutine then does less.
const racing = true
