package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// examineClock says whether something keeps the clock right: processes that
// share a store go by its clock, and days of a calendar by this one.
func examineClock(u *diagnosis) {
	now := time.Now().UTC().Format(time.RFC3339)
	var state unix.Timex
	status, err := unix.Adjtimex(&state)
	if err == nil && (status == unix.TIME_ERROR || state.Status&unix.STA_UNSYNC != 0) {
		u.add("clock", "warning", now+", and nothing says that it is synchronized", "timedatectl, or chrony")
		return
	}
	u.ok("clock", "%s", now)
}
