package request_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/request"
)

// TestCallTimeout: of several deadlines the shortest counts, as servers take one or the other, and what is
// none does not.
func TestCallTimeout(t *testing.T) {
	for _, c := range []struct {
		fields []string
		want   time.Duration
	}{
		{[]string{"99H", "60m"}, 45 * time.Millisecond}, {[]string{"60m", "99H"}, 45 * time.Millisecond}, {[]string{"4S"}, 3 * time.Second}, {[]string{"", "x", "-4S", "4"}, -1}, {[]string{"9223372036854775807H"}, -1}, {nil, -1},
	} {
		if got := request.CallTimeout(http.Header{"Grpc-Timeout": c.fields}); got != c.want && (c.want >= 0 || got < 1000*time.Hour) {
			t.Errorf("%q: %v, want %v", c.fields, got, c.want)
		}
	}
}
