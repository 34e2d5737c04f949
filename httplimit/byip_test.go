package httplimit_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"
)

// TestByIP: a listener whose clients have no address is warned of, once.
func TestByIP(t *testing.T) {
	var log bytes.Buffer
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(was)
	for peer, warnings := range map[string]int{"192.0.2.1:1": 0, "@": 1} {
		log.Reset()
		h := httplimit.ByIP("site", "2/min", "1k/h")(status)
		for i, want := range []int{200, 200, 429} {
			if w := recorded(h, request(peer)); w.Code != want || !strings.Contains(w.Header().Get("Ratelimit-Policy"), `;q=2;w=60, `) {
				t.Errorf("%s, request %d: %d, want %d; %v", peer, i+1, w.Code, want, w.Header())
			}
		}
		if n := strings.Count(log.String(), "TrustUnix"); n != warnings {
			t.Errorf("%s: %d warnings: %s", peer, n, &log)
		}
	}
}

func TestByIPPanics(t *testing.T) {
	for _, c := range []struct {
		name, limit, want string
	}{
		{"site", "100/fortnight", `httplimit: ByIP("site"): stint: limit "100/fortnight", column 5: unknown period "fortnight"`},
		{"a\nb", "100/m", `httplimit: ByIP("a\nb"): stint: `},
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, c.want) {
					t.Errorf("%s: panics with %q, want %q", c.limit, got, c.want)
				}
			}()
			httplimit.ByIP(c.name, c.limit)
		}()
	}
}
