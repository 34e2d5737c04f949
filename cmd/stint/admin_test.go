package main_test

import (
	"strings"
	"testing"
)

// TestServeAdmin: stint serve has a second address for operators, with the lab on it,
// which reads no logs there; the first has none.
func TestServeAdmin(t *testing.T) {
	s := startServe(t, "-c", writeFile(t, t.TempDir()+"/stint.yaml", serveRules), "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	for _, c := range []struct {
		method, url string
		status      int
		answer      string
	}{
		{"GET", s.admin + "/lab/", 200, "<title>stint lab</title>"},
		{"GET", s.admin + "/lab/v1/lab", 200, `"plan":false`},
		{"POST", s.admin + "/lab/v1/plan", 405, ""},
		{"POST", s.admin + "/v1/simulate", 200, `"denied":10`},
		{"POST", s.admin + "/v1/check", 404, ""},
		{"GET", "http://" + s.address + "/lab/", 404, ""},
		{"POST", "http://" + s.address + "/v1/simulate", 404, ""},
	} {
		status, body := s.call(c.method, c.url, `{"limits":["10/s"],"arrivals":{"shape":"text","text":"20@once"}}`, map[string]string{"Content-Type": "application/json"})
		if status != c.status || !strings.Contains(body, c.answer) {
			t.Errorf("%s %s: %d %.200s; want %d and %q", c.method, c.url, status, body, c.status, c.answer)
		}
	}
}
