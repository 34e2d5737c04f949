package nginxrules_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/memstore"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/proxy"
	"github.com/stint-dev/stint/service/rules"
)

// A side is a configuration, and requests with what nginx does with them:
//
//	== name
//	directives of http, with PORT, UPSTREAM and ROOT
//	----
//	4 POST /login host=shop.example X-User=7 ..DD
//	4 /login host=- at=127.0.0.2 ..DD
//	3 held GET /slow ..D
//	note: a part of a note
//	lost: a part of a note about a limit that is not kept
//
// Held requests that pass are answered only after all have been sent. If the rules are known to differ,
// -> follows, and what the proxy does with the requests. A request with - for a host has none, one with at
// goes to another address of nginx.
type side struct {
	name, conf string
	lines      []string
}

func sides(t testing.TB, file string) (all []side) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split("\n"+string(text), "\n== ")[1:] {
		name, rest, _ := strings.Cut(part, "\n")
		conf, lines, ok := strings.Cut(rest, "----\n")
		if !ok {
			t.Fatalf("%s: %s has no requests", file, name)
		}
		all = append(all, side{name, conf, strings.Split(strings.TrimSpace(lines), "\n")})
	}
	return all
}

// TestBesideNginx sends the same requests to nginx, with each configuration, and to the proxy, with the
// rules that are made of it.
func TestBesideNginx(t *testing.T) {
	need.Program(t, "nginx")
	files, err := filepath.Glob("testdata/beside/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no configurations")
	}
	for _, file := range files {
		all := sides(t, file)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			for i := range all {
				t.Run(all[i].name, func(t *testing.T) { all[i].run(t) })
			}
		})
		if *golden.Update {
			var b strings.Builder
			for _, s := range all {
				fmt.Fprintf(&b, "== %s\n%s----\n%s\n\n", s.name, s.conf, strings.Join(s.lines, "\n"))
			}
			if err := os.WriteFile(file, []byte(strings.TrimSuffix(b.String(), "\n")), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

const around = `
error_log stderr crit; pid %[1]s/nginx.pid; events { worker_connections 256; }
http {
	access_log off;
	client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
	include part.conf;
}
# %[2]d
`

func (s *side) run(t *testing.T) {
	held := make(held)
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Held") != "" {
			release := make(chan struct{})
			held <- release
			<-release
		}
		if r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer behind.Close()
	root := t.TempDir()
	for _, name := range []string{"index.php", "style.css", "blog/index.php", "v1.0/index.php", "page.html"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	part := strings.NewReplacer("UPSTREAM", behind.URL, "ROOT", root).Replace(s.conf)
	yaml, notes := converted(t, map[string]string{"nginx.conf": "http {\n" + part + "\n}"})
	there := realNginx(t, part)
	here := front(t, yaml, behind.URL)
	var wantNotes []string
	for i, line := range s.lines {
		kind, rest, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(kind)
		if err != nil {
			wantNotes = append(wantNotes, rest)
			if !slices.ContainsFunc(notes, func(n string) bool {
				return strings.Contains(n, rest) && strings.HasPrefix(n, "lost: ") == (kind == "lost:")
			}) {
				t.Errorf("no %q in\n%s", line, strings.Join(notes, "\n"))
			}
			continue
		}
		words := strings.Fields(line)
		words = words[:slices.IndexFunc(append(words, "."), func(w string) bool { return strings.Trim(w, ".DR") == "" })]
		at, asked := there, slices.DeleteFunc(slices.Clone(words[1:]), func(w string) bool { return strings.HasPrefix(w, "at=") })
		if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "at=") }); i >= 0 {
			at = strings.Replace(there, "127.0.0.1", words[i][3:], 1)
		}
		got := held.asked(t, at, asked, n)
		if own := held.asked(t, here, asked, n); own != got {
			got += " -> " + own
		}
		if got = strings.Join(words, " ") + " " + got; *golden.Update {
			s.lines[i] = got
		} else if got != line {
			t.Errorf("%s, want\n%s\nby\n%s", got, line, yaml)
		}
	}
	for _, n := range notes {
		if strings.HasPrefix(n, "lost: ") && !slices.ContainsFunc(wantNotes, func(w string) bool { return strings.Contains(n, w) }) {
			t.Errorf("a limit is lost: %s", n)
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s", yaml, strings.Join(notes, "\n"))
	}
}

// realNginx starts nginx with directives of http, and returns its address.
func realNginx(t *testing.T, part string) string {
	t.Helper()
	files := map[string]string{}
	port := nginx(t, around, files, func(port int) { files["part.conf"] = strings.ReplaceAll(part, "PORT", strconv.Itoa(port)) })
	if strings.Contains(part, "127.0.0.2:") { // nginx begins to listen at one address after the other
		await.Until(t, "nginx listens", func() bool {
			c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.2:%d", port))
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// front starts the proxy with rules, and returns its address.
func front(t *testing.T, yaml, upstream string) string {
	t.Helper()
	file, err := rules.Decode("stint.yaml", []byte(yaml))
	if err != nil {
		t.Fatalf("%v in\n%s", err, yaml)
	}
	target, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	source, err := rules.Open(store, "", file, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	observer := observe.New(observe.Options{Log: log})
	t.Cleanup(observer.Close)
	h, err := proxy.NewHandler(proxy.Options{
		Upstream: target, Source: source, Observer: observer, Log: log,
		Client: httplimit.ClientIP{Trusted: file.Settings.TrustedProxies, Header: file.Settings.ClientIPHeader},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// held has what releases each request that waits at the server behind.
type held chan chan struct{}

// asked sends n requests, and returns a dot for each that passed and a D for each that
// was denied.
func (h held) asked(t *testing.T, address string, words []string, n int) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	var b strings.Builder
	if words[0] != "held" {
		for range n {
			b.WriteString(answered(t, client, address, words))
		}
		return b.String()
	}
	var all sync.WaitGroup
	var waiting []chan struct{}
	for range n {
		answer := make(chan string, 1)
		all.Go(func() { answer <- answered(t, client, address, append(slices.Clone(words[1:]), "X-Held=1")) })
		select {
		case said := <-answer: // by what stands in front
			b.WriteString(said)
		case release := <-h:
			waiting = append(waiting, release)
			b.WriteByte('.')
		}
	}
	for _, release := range waiting {
		close(release)
	}
	all.Wait()
	return b.String()
}

// answered sends a request, and returns a D if it was denied, an R if it was refused with 400, otherwise a dot.
func answered(t *testing.T, client *http.Client, address string, words []string) string {
	method := http.MethodGet
	if !strings.HasPrefix(words[0], "/") {
		method, words = words[0], words[1:]
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+words[0], nil)
	if err != nil {
		t.Error(err)
		return "?"
	}
	r.Header.Set("User-Agent", "test")
	for _, w := range words[1:] {
		if name, value, _ := strings.Cut(w, "="); name == "host" {
			r.Host = value
		} else {
			r.Header.Set(name, value)
		}
	}
	do := client.Do
	if r.Host == "-" {
		do = bare
	}
	w, err := do(r)
	if err != nil {
		t.Error(err)
		return "?"
	}
	w.Body.Close()
	switch w.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInternalServerError: // the last of auth_request
		return "D"
	case http.StatusBadRequest:
		return "R"
	}
	return "."
}

// bare sends a request without a host.
func bare(r *http.Request) (*http.Response, error) {
	var d net.Dialer
	c, err := d.DialContext(r.Context(), "tcp", r.URL.Host)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	fmt.Fprintf(c, "%s %s HTTP/1.0\r\n\r\n", r.Method, r.URL.RequestURI())
	return http.ReadResponse(bufio.NewReader(c), r)
}
