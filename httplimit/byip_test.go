package httplimit_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"
)

func TestByIP(t *testing.T) {
	h := httplimit.ByIP("site", "2/min", "1k/h")(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	for i, want := range []int{200, 200, 429} {
		w := serve(h, "/")
		if w.Code != want {
			t.Errorf("request %d: %d, want %d", i+1, w.Code, want)
		}
		if got := w.Header().Get("Ratelimit-Policy"); !strings.Contains(got, `;q=2;w=60, `) {
			t.Errorf("RateLimit-Policy: %s", got)
		}
	}
}

// TestByIPUnix: a listener whose clients have no address is warned of, once.
func TestByIPUnix(t *testing.T) {
	var log bytes.Buffer
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(was)
	h := httplimit.ByIP("site", "2/min")(status)
	for i, want := range []int{200, 200, 429} {
		if rec := recorded(h, request("@")); rec.Code != want {
			t.Errorf("request %d: %d, want %d", i+1, rec.Code, want)
		}
	}
	if n := strings.Count(log.String(), "TrustUnix"); n != 1 {
		t.Errorf("%d warnings: %s", n, &log)
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
