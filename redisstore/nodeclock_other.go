//go:build !linux

package redisstore

// sinceBoot returns 0: these systems are not known to have a clock that counts suspends.
func sinceBoot() int64 { return 0 }
