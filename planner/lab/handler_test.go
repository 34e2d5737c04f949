package lab_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/pages"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/planner/lab"
)

const small = `{"limits":["10/s"],"arrivals":{"shape":"text","text":"20@once"}}`

func TestHandler(t *testing.T) {
	h := lab.Guard(lab.New(lab.Options{}))
	for _, c := range []struct {
		name, method, path, body string
		header                   map[string]string
		status                   int
		answer                   string
	}{
		{"the page", "GET", "/", "", nil, 200, "<title>stint lab</title>"},
		{"a module", "GET", "/main.js", "", nil, 200, "import"},
		{"what there is", "GET", "/v1/lab", "", nil, 200, `"name":"gcra"`},
		{"no such file", "GET", "/none", "", nil, 404, ""},
		{"no way out", "GET", "/../lab.go", "", nil, 307, "/lab.go"},
		{"a simulation", "POST", "/v1/simulate", small, nil, 200, `"passed":10,"delayed":0,"denied":10,`},
		{"the wrong method", "GET", "/v1/simulate", "", nil, 404, ""},
		{"no logs", "POST", "/v1/plan", small, nil, 405, ""},
		{"a form", "POST", "/v1/simulate", small, map[string]string{"Content-Type": "text/plain"}, 200, ""},
		{"a charset", "POST", "/v1/simulate", small, map[string]string{"Content-Type": "application/json; charset=utf-8"}, 200, ""},
		{"not JSON", "POST", "/v1/simulate", "limits", nil, 400, `"detail":"byte 1: want an object, not 'l'"`},
		{"a limit in flight", "POST", "/v1/simulate", `{"limits":["3 in flight"],"lasts":"1s","arrivals":{"shape":"text","text":"8@once +1s 2@once +1s"}}`, nil, 200, `"kind":"in_flight","capacity":3,"requests":10,"passed":5,"delayed":0,"denied":5,`},
		{"a wrong limit", "POST", "/v1/simulate", `{"limits":["ten"]}`, nil, 400, `"detail":"limits[0]: limit \"ten\", column 1`},
		{"too large", "POST", "/v1/simulate", strings.Repeat(" ", lab.MaxBody) + small, nil, 413, `"detail":"the body is over 4 MiB"`},
		{"another name for this machine", "GET", "/", "", map[string]string{"Host": "lab.example:8090"}, 421, "loopback"},
		{"an address that is not loopback", "GET", "/", "", map[string]string{"Host": "192.0.2.1"}, 421, "loopback"},
		{"localhost", "GET", "/", "", map[string]string{"Host": "localhost:1234"}, 200, ""},
		{"IPv6", "GET", "/", "", map[string]string{"Host": "[::1]:8090"}, 200, ""},
		{"another origin", "POST", "/v1/simulate", small, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403, ""},
		{"another origin of an old browser", "POST", "/v1/simulate", small, map[string]string{"Origin": "http://lab.example"}, 403, ""},
		{"its own page", "POST", "/v1/simulate", small, map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:8090"}, 200, ""},
	} {
		r := httptest.NewRequest(c.method, "http://127.0.0.1:8090/", strings.NewReader(c.body))
		r.URL.Path = c.path
		if c.method == "POST" {
			r.Header.Set("Content-Type", "application/json")
		}
		for name, value := range c.header {
			r.Header.Set(name, value)
		}
		if host := c.header["Host"]; host != "" {
			r.Host = host
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.answer) {
			t.Errorf("%s: %d %.200s; want %d and %q", c.name, w.Code, w.Body, c.status, c.answer)
		}
		if kind := w.Header().Get("Content-Type"); strings.Contains(c.answer, `"detail"`) && kind != "application/problem+json" {
			t.Errorf("%s: Content-Type %s", c.name, kind)
		}
	}
}

// TestHandlerHeaders holds the page's policy: only its own files, and nothing
// that stands in the page.
func TestHandlerHeaders(t *testing.T) {
	for _, path := range []string{"/", "/main.js", "/v1/lab", "/none"} {
		w := httptest.NewRecorder()
		lab.New(lab.Options{}).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		csp := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; script-src 'self'; style-src 'self';") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") ||
			!strings.Contains(csp, "frame-ancestors 'none'") || !strings.Contains(csp, "require-trusted-types-for 'script'") {
			t.Errorf("%s: Content-Security-Policy: %s", path, csp)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
}

// TestHandlerFiles: all of the page's files are there, also under a prefix, with
// types that browsers accept.
func TestHandlerFiles(t *testing.T) {
	files, err := os.ReadDir("page")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	h := http.StripPrefix("/lab", lab.New(lab.Options{}))
	for _, f := range files {
		_, end, _ := strings.Cut(f.Name(), ".")
		want := map[string]string{"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml", "html": "text/html; charset=utf-8"}[end]
		name := f.Name()
		if name == "index.html" {
			name = ""
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/lab/"+name, nil))
		content, err := os.ReadFile("page/" + f.Name())
		if err != nil || w.Code != 200 || w.Header().Get("Content-Type") != want || w.Body.String() != string(content) {
			t.Errorf("%s: %v: %d %q, want %q", f.Name(), err, w.Code, w.Header().Get("Content-Type"), want)
		}
		if strings.Contains(string(content), "http://") && end != "svg" || strings.Contains(string(content), "https://") {
			t.Errorf("%s names an address elsewhere", f.Name())
		}
	}
}

// TestHandlerPlan: logs are taken when there is a planner, and said to be.
func TestHandlerPlan(t *testing.T) {
	for _, o := range []lab.Options{{}, {Plan: lab.NewPlanner(lab.PlannerOptions{MaxBody: 1000})}} {
		h := lab.New(o)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/lab", nil))
		var about struct {
			Plan   bool
			MaxLog int64 `json:"max_log"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &about); err != nil || about.Plan != (o.Plan != nil) || (about.MaxLog == 1000) != about.Plan {
			t.Errorf("%v: %s", err, w.Body)
		}
		w = httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/plan", strings.NewReader("no log\n")))
		if want := http.StatusMethodNotAllowed; o.Plan == nil && w.Code != want || o.Plan != nil && w.Code != http.StatusBadRequest {
			t.Errorf("POST v1/plan: %d", w.Code)
		}
	}
}

// TestServe starts and stops a lab.
func TestServe(t *testing.T) {
	ln := freeport.Listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- lab.Serve(ctx, ln, lab.Options{}) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post("http://"+ln.Addr().String()+"/v1/simulate", "application/json", strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), `"denied":10`) {
		t.Errorf("%v: %d %s", err, resp.StatusCode, body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestKinds compares the short explanations with the engine and with docs/LIMITS.md: every kind has
// one, its options are those that a limit of it takes, its facts those of the page's table.
func TestKinds(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| \[([a-z_]+)\]\(#[^)]*\) \| (.*) \| (.*) \| (.*) \|$`).FindAllStringSubmatch(pages.Read(t, "docs/LIMITS.md"), -1)
	kinds := lab.Kinds()
	if len(rows) != len(kinds) || len(kinds) != len(meter.Algorithms()) {
		t.Fatalf("the lab has %d kinds, docs/LIMITS.md %d, package meter %d", len(kinds), len(rows), len(meter.Algorithms()))
	}
	for i, k := range kinds {
		if a, _ := meter.ParseAlgorithm(k.Name); a != meter.Algorithm(i) || k.Queues != a.Queues() {
			t.Errorf("%s: row %d, queues %v", k.Name, i, k.Queues)
		}
		if row := rows[i]; k.Name != row[1] || k.Few != row[2] || k.Most != row[3] || k.Memory != row[4] {
			t.Errorf("%s: %q, %q, %q; docs/LIMITS.md says %q", k.Name, k.Few, k.Most, k.Memory, row[1:])
		}
		for _, said := range []string{k.Title, k.How, k.Choose, k.Wrong, k.Level} {
			if said == "" {
				t.Errorf("%s is not explained in full: %+v", k.Name, k)
			}
		}
		for option, text := range map[string]string{"burst": " burst 3", "parts": " parts 3", "relaxed": " relaxed", "count_denied": " count_denied"} {
			_, err := stint.Parse("10/s " + k.Name + text)
			if has := strings.Contains(strings.Join(k.Options, " "), option); has != (err == nil) {
				t.Errorf("%s: option %s is said to be %v: %v", k.Name, option, has, err)
			}
		}
	}
}

// TestAside simulates in a process that has more important things to do: the
// answers are the same.
func TestAside(t *testing.T) {
	for _, more := range []string{"", `,"each":false`, `,"why":{"request":7,"limit":0}`, `,"copy":1`} {
		t.Run(more, func(t *testing.T) { testAside(t, more) })
	}
}

func testAside(t *testing.T, more string) {
	body := `{"limits":["100/s sliding_log","10/s leaky_queue","5/s"],"arrivals":{"shape":"text","text":"9000@1000/s"}` + more + `}`
	var answers []string
	for _, aside := range []bool{false, true} {
		r := httptest.NewRequest(http.MethodPost, "/v1/simulate", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		lab.New(lab.Options{Aside: aside}).ServeHTTP(w, r)
		answers = append(answers, w.Body.String())
	}
	if answers[0] != answers[1] {
		t.Error("the answers differ")
	}
}

// TestDocsEndpoint sends what docs/LAB.md sends to POST v1/simulate.
func TestDocsEndpoint(t *testing.T) {
	examples := regexp.MustCompile(`(?s)v1/simulate -H 'Content-Type: application/json' -d '(.*?)'`).FindAllStringSubmatch(pages.Read(t, "docs/LAB.md"), -1)
	if len(examples) == 0 {
		t.Fatal("docs/LAB.md has no example of the endpoint")
	}
	for _, e := range examples {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/v1/simulate", strings.NewReader(e[1]))
		r.Header.Set("Content-Type", "application/json")
		lab.Simulator(false).ServeHTTP(w, r)
		if w.Code != 200 {
			t.Errorf("%s\nanswers %d: %s", e[1], w.Code, w.Body)
		}
	}
}
