//go:build !linux

package redisstore

// sinceBoot returns 0: no clock that counts suspends is known here.
func sinceBoot() int64 { return 0 }
