// Package rehearse says what other rules would have done to requests that came:
// it runs the rules in force and the others over a recording, side by side, and
// compares whom they deny.
//
// Both are decided by package policy, on stores in memory with a clock that
// goes by the times of the requests. They begin with nothing used: the first
// requests fill the stores and are left out of the counts.
package rehearse
