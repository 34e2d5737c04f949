//go:build race

package redisstore_test

// racing says that the race detector is on, under which all is slower: what runs
// long then does less.
const racing = true
