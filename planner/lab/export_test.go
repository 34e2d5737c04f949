package lab

import "time"

// SetPatience says how long a simulation may take, and how long a log waits.
func SetPatience(d time.Duration) { patience, turnPatience = d, d }
