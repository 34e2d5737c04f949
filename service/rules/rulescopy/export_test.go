package rulescopy

import "time"

// SetDiskWithin sets how long a disk may take, and returns what sets it back.
func SetDiskWithin(d time.Duration) func() {
	was := diskWithin
	diskWithin = d
	return func() { diskWithin = was }
}
