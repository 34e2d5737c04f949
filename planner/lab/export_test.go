package lab

import "time"

// SetPatience says how long a simulation may take.
func SetPatience(d time.Duration) { patience = d }
