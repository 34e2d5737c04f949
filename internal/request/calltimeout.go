package request

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/stint-dev/stint/internal/satmath"
)

// CallTimeout returns about when servers may end a gRPC call for the deadline that its client has set, of
// several the shortest: servers take one or the other.
func CallTimeout(h http.Header) time.Duration {
	units := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': 1}
	least := time.Duration(math.MaxInt64)
	for _, text := range h["Grpc-Timeout"] {
		if text == "" {
			continue
		}
		unit := units[text[len(text)-1]]
		n, err := strconv.ParseInt(text[:len(text)-1], 10, 64)
		if within, fits := satmath.Mul(n, int64(unit)); err == nil && unit > 0 && n >= 0 && fits {
			least = min(least, time.Duration(within))
		}
	}
	return least - least/4
}
