package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// examineClock reports whether the clock is synchronized: days of a calendar go by it.
// Processes that share a store go by the store's clock for everything else.
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
