// Package rehearse says what other rules would have done to requests that came:
// it runs the rules in force and the others over a recording, side by side, and
// compares whom they deny.
//
// Both are decided by package policy, on stores in memory with a clock that
// goes by the times of the requests. They begin with what keys had used at a
// checkpoint; without one with nothing used, and the first requests, which fill
// the stores, are left out of the counts.
package rehearse
