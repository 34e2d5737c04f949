// Package match says whether a request meets conditions on its attributes:
// literal values, globs, path patterns, address ranges. An [Index] finds which
// of many conditions may hold without trying them all.
//
// Conditions and indexes do not change once they are made, and may be used from
// many goroutines at once.
package match
