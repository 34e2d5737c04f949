// Package match decides whether a request meets conditions on its attributes: exact values, globs,
// path patterns, address ranges. An [Index] finds the conditions, among many, that may hold,
// without trying all.
//
// Conditions and indexes do not change once they are made, and may be used from many goroutines at
// once.
package match
