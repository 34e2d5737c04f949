package nginxrules_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/need"
)

// A writer writes random configurations of one server. Limits are by X-K or the address alone, or by that
// and what redirects change.
type writer struct {
	*rand.Rand
	plain bool // many locations with limits, and no rewriting
}

func (w writer) one(all ...string) string { return all[w.IntN(len(all))] }

// some returns a text in that many of a hundred times.
func (w writer) some(percent int, text string) string {
	if w.IntN(100) < percent {
		return text
	}
	return ""
}

func (w writer) limit() string {
	strict, loose := "limit_req zone=a nodelay; ", "limit_req zone=b burst="+w.one("1", "9")+" nodelay; "
	if w.plain {
		return w.one("", strict, loose)
	}
	return w.one("", "", strict, strict, loose,
		w.some(30, "limit_req zone="+w.one("method", "path", "query")+" burst=1 nodelay; "))
}

func (w writer) page() string {
	return "error_page " + w.one("404", "418", "403 404", "418 =200", "405", "401", "301", "413 502") + " " + w.one("/a", "/x.php", "/b/x", "/c$uri", "@n", "@n") + "; "
}

// rewriting is that of a location, a server, or an if with the condition given.
func (w writer) rewriting(given string) (text string) {
	for !w.plain && w.IntN(100) < 40 || given != "" && text == "" {
		switch w.IntN(10) {
		case 0, 1, 2, 3:
			text += "rewrite " + w.one("^/a", "^/a/(.*)$", "^/b/", "^/(.*)$", "^/$", "^", "/b", `\.php$`, "^/c/(.*)$", "^/(.+)$", "/$") + " " +
				w.one("/a", "/a/b", "/b/x", "/x.php", "/$1", "/b/$1", "/c/z", "/style.css", "/b/x?q=1", "/", "/d/", "/c$uri") + w.one("", "", " last", " last", " last", " break", " redirect") + "; "
		case 4:
			text += "break; "
		case 5, 6:
			text += "return " + w.one("403", "404", "418", "418", "200", "301 /z") + "; "
		case 7:
			text += w.one("set $args ''; ", "set $z 1; ")
		default:
			if given == "" {
				when := w.one("$request_method = POST", "$http_x_a", "$uri ~ ^/a", "$arg_q", "$request_method != GET", "$http_x_a = 1", "-f $request_filename", "$uri = /a", "$v", "$uri !~ ^/a", "$http_x_a = ''")
				text += "if (" + when + ") { " + w.rewriting(when) + "} "
			}
		}
	}
	return text
}

func (w writer) location(head string) string {
	return "\tlocation " + head + " { " + w.limit() + w.rewriting("") + w.some(15, w.page()) +
		w.some(12, "try_files "+w.one("$uri", "$uri $uri/", "/nothing")+" "+w.one("/x.php", "/a/b", "/c$uri", "=404", "@n")+"; ") +
		w.some(6, "auth_request "+w.one("/auth", "/a")+"; ") + w.some(4, w.one("deny all; ", "allow 127.0.0.1; deny all; ")) +
		w.some(6, "index "+w.one("index.php", "/b/x", "page.html")+"; ") + w.some(3, "limit_except GET { allow all; } ") +
		w.some(10, "proxy_intercept_errors on; ") + w.some(4, map[bool]string{false: "internal; "}[strings.HasPrefix(head, "@")]) + w.some(55, "proxy_pass UPSTREAM; ") + "}\n"
}

func (w writer) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, `set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;
limit_req_zone %[1]s zone=a:1m rate=1r/m; limit_req_zone %[1]s zone=b:1m rate=%[2]s;
map $request_method $m { default %[1]s; %[3]s ""; } limit_req_zone $m zone=method:1m rate=1r/m;
map $uri $u { default %[1]s; %[4]s ""; } limit_req_zone $u zone=path:1m rate=1r/m;
map $arg_q $q { default %[1]s; %[5]s ""; } limit_req_zone $q zone=query:1m rate=1r/m;
map $%[6]s $v { default 0; %[7]s 1; }
server {
	listen 127.0.0.1:PORT; root ROOT; %[8]s%[9]s%[10]s%[11]s
`, w.one("$http_x_k", "$binary_remote_addr", "$binary_remote_addr"), w.one("1r/m", "2r/m"), w.one("GET", "POST"), w.one("/a", "~^/b", "/b/x"), w.one("1", "''"), w.one("uri", "http_x_a", "request_method"), w.one("/a", "1", "GET"),
		w.some(25, w.limit()), w.rewriting(""), w.some(15, w.page()), w.some(5, "auth_request /auth;"))
	heads := []string{"/", "/a", "/a/", "= /a", "= /a/b", "/b/", `~ \.php$`, "~ ^/a/", `~ "^/[a-c]{1}/"`, "^~ /b", "/a/b", "= /", "/c/", "= /auth", "/d/", `~* \.(css|js)$`}
	w.Shuffle(len(heads), func(i, j int) { heads[i], heads[j] = heads[j], heads[i] })
	for _, head := range append(heads[:map[bool]int{false: 1, true: 4}[w.plain]+w.IntN(5)], "@n") {
		b.WriteString(w.location(head))
	}
	return b.String() + "}\n"
}

// TestRandomBesideNginx: whatever a configuration is, no request passes here more often than in nginx,
// unless a limit is said to be lost.
func TestRandomBesideNginx(t *testing.T) {
	need.Program(t, "nginx")
	behind := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer behind.Close()
	root := t.TempDir()
	for _, name := range []string{"index.html", "style.css", "b/index.php", "d/index.php", "d.d/index.html", "x.php"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	n, step, kept := 400, 1, 0
	if testing.Short() {
		n, step = 40, 109 // one of these once let more pass than nginx
	}
	for nth := range n {
		i := nth * step
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			w := writer{rand.New(rand.NewPCG(44, uint64(i))), i%2 == 0}
			part := strings.NewReplacer("UPSTREAM", behind.URL, "ROOT", root).Replace(w.config())
			yaml, notes := converted(t, map[string]string{"nginx.conf": "http {\n" + part + "\n}"})
			if strings.Contains(strings.Join(notes, "\n"), "lost: ") {
				return
			}
			kept++
			there, here := realNginx(t, part), front(t, yaml, behind.URL)
			k := 0 // the client
			for _, path := range strings.Fields("/ /a /a/ /a/b /a/b/y /b /b/x /b/ /x.php /a/x.php /style.css /c/z /c/b/x /d/ /d.d/ /b/x?q=1 /a?q=1 /nothing /auth") {
				for _, form := range []string{"%s", "POST %s", "%s X-A=1"} {
					words := strings.Fields(fmt.Sprintf(form+" X-K=%d X-Real-IP=10.0.0.%[2]d", path, k))
					k++
					passed := func(address string) int { return len(strings.TrimRight(held(nil).asked(t, address, words, 3), "D")) }
					if nginx := passed(there); nginx > 0 && passed(here) > nginx { // 0 are the cycles that nginx ends
						t.Errorf("%v: %d pass in nginx, more here, of\n%sby\n%s", words, nginx, part, yaml)
					}
				}
			}
		})
	}
	if kept < n/4 {
		t.Errorf("%d of %d configurations are kept: this sees too little", kept, n)
	}
}
