package main_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestServeAdmin: stint serve has a second address for operators, with the lab
// on it, where a page of another origin or by another name is refused; the first
// has none.
func TestServeAdmin(t *testing.T) {
	dir := t.TempDir()
	s := startServe(t, "-c", writeFile(t, dir+"/stint.yaml", serveRules), "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	admin := strings.TrimPrefix(s.admin, "http://")
	const question = `{"limits":["10/s"],"arrivals":{"shape":"text","text":"20@once"}}`
	for _, c := range []struct {
		address, method, path, host, site string
		status                            int
		answer                            string
	}{
		{admin, "GET", "/", "", "", 200, `<a href="lab/">`},
		{admin, "GET", "/livez", "", "", 200, "ok"},
		{admin, "GET", "/readyz", "", "", 200, "ok"},
		{admin, "GET", "/metrics", "", "", 200, "stint_"},
		{admin, "GET", "/lab/", "", "", 200, "<title>stint lab</title>"},
		{admin, "GET", "/lab/v1/lab", "", "", 200, `"plan":false`},
		{admin, "POST", "/lab/v1/simulate", "", "same-origin", 200, `"denied":10`},
		{admin, "POST", "/v1/simulate", "", "", 200, `"denied":10`},
		{admin, "POST", "/v1/simulate", "", "cross-site", 403, ""},
		{admin, "GET", "/lab/", "lab.example", "", 421, ""},
		{admin, "POST", "/lab/v1/plan", "", "", 405, ""},
		{admin, "POST", "/v1/check", "", "", 404, ""},
		{s.address, "GET", "/lab/", "", "", 404, ""},
		{s.address, "POST", "/v1/simulate", "", "", 404, ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+c.address+c.path, strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		r.Header.Set("Content-Type", "application/json")
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		resp, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || !strings.Contains(string(body), c.answer) {
			t.Errorf("%s %s: %v: %d %.200s; want %d and %q", c.method, c.path, err, resp.StatusCode, body, c.status, c.answer)
		}
	}
}
