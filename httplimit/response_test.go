package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// A metered is a handler behind rules, on a real server, and what its rules have left.
type metered struct {
	*httptest.Server
	t      testing.TB
	policy *policy.Policy
	errs   atomic.Int64
	ended  chan struct{} // a value for each response that has been settled
}

// metering serves a handler behind rules, whose clock stands still.
func metering(t testing.TB, rules string, handler http.HandlerFunc) *metered {
	return meteringOptions(t, rules, httplimit.Options{}, handler)
}

func meteringOptions(t testing.TB, rules string, o httplimit.Options, handler http.HandlerFunc) *metered {
	t.Helper()
	parsed := made.Rules(t, rules)
	store := memstore.New(memstore.Options{Now: func() int64 { return 1e18 }})
	m := &metered{t: t, ended: make(chan struct{}, 1000)}
	m.policy = made.Policy(t, store, parsed, policy.Options{})
	o.OnError = func(*http.Request, error) { m.errs.Add(1) }
	guard := sound(t)(httplimit.NewPolicy(m.policy, httplimit.ClientIP{}, o))
	guarded := guard(handler)
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { m.ended <- struct{}{} }()
		guarded.ServeHTTP(w, r)
	}))
	t.Cleanup(m.Close)
	return m
}

// left returns what a request of the path has left under each limit, by its label.
func (m *metered) left(path string) map[string]int64 {
	m.t.Helper()
	var r policy.Result
	if err := m.policy.Peek(context.Background(), policy.Map{"path": path, "ip": "127.0.0.1", "method": "GET"}, 1, &r); err != nil {
		m.t.Fatal(err)
	}
	all := make(map[string]int64)
	for _, e := range r.Rules {
		all[e.Label] = e.Remaining
	}
	return all
}

// get makes a request, reads its answer and waits until it has been settled.
func (m *metered) get(path string) (status int, body string) {
	m.t.Helper()
	resp, err := http.Get(m.URL + path)
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		text = append(text, " ("+err.Error()+")"...)
	}
	<-m.ended
	return resp.StatusCode, string(text)
}

const rulesOf = `{"rules": [
	{"name": "all", "key": ["ip"], "limits": ["100/h"]},
	{"name": "r", "match": {"path": "/r/**"}, "key": ["ip"], "limits": ["1000/h"], %s}]}`

// TestResponse charges what the responses of a real server say.
func TestResponse(t *testing.T) {
	const usage = `"cost": {"response": "/usage/total_tokens", "reserve": 100}`
	send := func(status int, header, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if name, value, ok := strings.Cut(header, ": "); ok {
				w.Header().Set(name, value)
			}
			w.WriteHeader(status)
			for _, c := range []byte(body) { // write each byte by itself
				_, _ = w.Write([]byte{c})
				w.(http.Flusher).Flush()
			}
		}
	}
	for _, c := range []struct {
		name, rule string
		handler    http.HandlerFunc
		want       int64 // units charged
	}{
		{"above the reservation", usage, send(200, "", `{"usage":{"total_tokens":700}}`), 700},
		{"events", usage, send(200, "Content-Type: text/event-stream", "data: {\"usage\":{\"total_tokens\":7}}\n\n"), 7},
		{"events with a false label", usage, send(200, "Content-Type: application/json", "data: {\"usage\":{\"total_tokens\":7}}\n\n"), 7},
		{"JSON with a false label", usage, send(200, "Content-Type: text/event-stream", `{"usage":{"total_tokens":7}}`), 7},
		{"no value", usage, send(200, "", `{"error":"none"}`), 100},
		{"no value, and what that costs", `"cost": {"response": ["/a", "/b"], "reserve": 100, "missing": 3}`, send(500, "", `{"error":"none"}`), 3},
		{"compressed", usage, send(200, "Content-Encoding: gzip", `{"usage":{"total_tokens":7}}`), 100},
		{"added", `"cost": {"response": ["/a", "/b"], "reserve": 100}`, send(200, "", `{"a":3,"b":4}`), 7},
		{"bytes, compressed", `"cost": {"response": "bytes", "reserve": 100}`, send(200, "Content-Encoding: gzip", "seven b"), 7},
		{"a status that counts", `"count": {"status": [401, "403"]}`, send(401, "", ""), 1},
		{"a status of the class", `"count": {"status": "4xx"}`, send(418, "", ""), 1},
		{"no status", `"count": {"status": "2xx"}`, func(http.ResponseWriter, *http.Request) {}, 1},
		{"both, counted", usage + `, "count": {"status": "2xx"}`, send(200, "", `{"usage":{"total_tokens":7}}`), 7},
		{"both, given back", usage + `, "count": {"status": "2xx"}`, send(500, "", `{"usage":{"total_tokens":7}}`), 0},
		{"in shadow", usage + `, "shadow": true`, send(200, "", `{"usage":{"total_tokens":7}}`), 7},
		{"the server gone after more than was reserved", usage, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"usage":{"total_tokens":700}}`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, 700},
		{"the server gone after the end", `"cost": {"usage": "openai", "reserve": 100}`, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "data: {\"usage\":{\"total_tokens\":7}}\n\ndata: [DONE]\n\n")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, 7},
		{"a panic before the status", `"count": {"status": "5xx"}`, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := metering(t, fmt.Sprintf(rulesOf, c.rule), c.handler)
			if resp, err := http.Get(m.URL + "/r/x"); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			<-m.ended
			left := m.left("/r/x")
			if got := 1000 - left["r"]; got != c.want {
				t.Errorf("charged %d, want %d", got, c.want)
			}
			if left["all"] != 99 {
				t.Errorf("the other rule has %d left, want 99", left["all"])
			}
			if compressed := c.name == "compressed"; m.errs.Load() > 0 != compressed {
				t.Errorf("%d errors", m.errs.Load())
			}
		})
	}
}

// TestResponseIdentity: the handler is asked for an uncompressed body, but only where a rule
// must read it.
func TestResponseIdentity(t *testing.T) {
	seen := make(chan string, 1)
	handler := func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("Accept-Encoding") }
	m := metering(t, fmt.Sprintf(rulesOf, `"cost": {"usage": "openai", "reserve": 1}`), handler)
	for path, want := range map[string]string{"/r/x": "identity", "/": "gzip"} {
		m.get(path)
		if got := <-seen; got != want {
			t.Errorf("%s: Accept-Encoding %q, want %q", path, got, want)
		}
	}
	m = metering(t, fmt.Sprintf(rulesOf, `"cost": {"response": "bytes", "reserve": 1}`), handler)
	m.get("/r/x")
	if got := <-seen; got != "gzip" {
		t.Errorf("bytes: Accept-Encoding %q, want gzip", got)
	}
}

// TestRequestBody reads keys, conditions and what is reserved from the body of a request,
// which the handler gets as it came.
func TestRequestBody(t *testing.T) {
	const rules = `{"rules": [{"name": "t", "match": {"path": "/v1/**"}, "key": ["body./model"], "on_missing": "deny", "limits": ["1000/h"],
		"cost": {"response": "/usage/total_tokens", "reserve": {"attribute": "body./max_tokens", "default": 50, "max": 500}}}]}`
	m := metering(t, rules, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	post := func(path, body string, header ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequest("POST", m.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range header {
			req.Header.Set(h, "gzip")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		<-m.ended
		return resp.StatusCode, string(text)
	}
	left := func(model string) int64 {
		var r policy.Result
		if err := m.policy.Peek(context.Background(), policy.Map{"path": "/v1/x", "body./model": model}, 1, &r); err != nil {
			t.Fatal(err)
		}
		return r.Rules[0].Remaining
	}
	long := `"` + strings.Repeat("x", 1<<20) + `"`
	for _, c := range []struct {
		path, body string
		status     int
		model      string
		left       int64
	}{
		{"/v1/chat", `{"model":"a","max_tokens":70}`, 200, "a", 930},
		{"/v1/chat", `{"model":"b"}`, 200, "b", 950},
		{"/v1/chat", `{"model":"c","max_tokens":9000}`, 200, "c", 500},
		{"/v1/chat", ` {"x":[{"model":"e"},2],"model":"d" , "max_tokens":1,"usage":{"total_tokens":3}}`, 200, "d", 997},
		{"/v1/chat", `{"max_tokens":1}`, 403, "", 1000},
		{"/v1/chat", `{"model":null}`, 403, "", 1000},
		{"/v1/chat", `{"model":{"x":1}}`, 400, "", 1000},
		{"/v1/chat", `{"model":["a"]}`, 400, "a", 930},
		{"/v1/chat", `{"model":"a","max_tokens":[9]}`, 400, "a", 930},
		{"/v1/chat", `model=a`, 400, "a", 930},
		{"/v1/chat", `/etc/hosts`, 403, "a", 930},
		{"/v1/chat", ``, 403, "a", 930},
		{"/v1/chat", `{"model":"a","model":"b"}`, 400, "a", 930},
		{"/v1/chat", `{"model":"a","max_tokens":"many"}`, 400, "a", 930},
		{"/v1/chat", `{"Model":"a"}`, 400, "a", 930},
		{"/v1/chat", `{"model":"a","max_tokens":1,"MAX_TO\u212AENS":500}`, 400, "a", 930},
		{"/v1/chat", `{"model":"a","max_tokens":1,"x":NaN}`, 400, "a", 930},
		{"/v1/chat", "\ufeff" + `{"model":"a"}`, 400, "a", 930},
		{"/v1/chat", "\xff\xfe{\x00\"\x00m\x00", 400, "a", 930},
		{"/v1/chat", "\x00{\x00\"\x00m", 400, "a", 930},
		{"/v1/chat", ` {"x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `,"model":"a"}`, 400, "a", 930},
		{"/v1/chat", strings.Repeat(" ", 100) + `{"model":"a",}`, 400, "a", 930},
		{"/v1/chat", `/**/{"model":"a"}`, 400, "a", 930},
		{"/v1/chat", "//\n{\"model\":\"a\"}", 400, "a", 930},
		{"/v1/chat", "\v\u00a0{\"model\":\"a\"}", 400, "a", 930},
		{"/v1/chat", "{\"model\":\"a\",\"x\":\"\xff\"}", 400, "a", 930},
		{"/v1/chat", `{"model":1e999}`, 400, "a", 930},
		{"/v1/chat", `{"model":7,"max_tokens":1}`, 200, "7", 999},
		{"/v1/chat", `{"model":7.0,"max_tokens":1}`, 200, "7", 998},
		{"/v1/chat", `{"model":70e-1,"max_tokens":1e0}`, 200, "7", 997},
		{"/v1/chat", `{"model":7.00000000000000000001,"max_tokens":1}`, 200, "7", 996},
		{"/v1/chat", `{"model":-0,"max_tokens":1}`, 200, "0", 999},
		{"/v1/chat", `{"model":0.0e9,"max_tokens":1}`, 200, "0", 998},
		{"/v1/chat", `{"model":9007199254740991,"max_tokens":1}`, 200, "9007199254740991", 999},
		{"/v1/chat", `{"model":-9007199254740991.0,"max_tokens":1}`, 200, "-9007199254740991", 999},
		{"/v1/chat", `{"model":9007199254740992,"max_tokens":1}`, 400, "a", 930}, // Node rounds 9007199254740993 to this
		{"/v1/chat", `{"model":9007199254740993,"max_tokens":1}`, 400, "a", 930},
		{"/v1/chat", `{"model":-9.1e15,"max_tokens":1}`, 400, "a", 930},
		{"/v1/chat", `{"model":"9007199254740993","max_tokens":1}`, 200, "9007199254740993", 999},
		{"/v1/chat", `{"other":9007199254740993,"model":"a","max_tokens":10}`, 200, "a", 920},
		{"/v1/chat", `{"model":"a\u0000b"}`, 400, "a", 920},
		{"/v1/chat", `{"model":` + long + `}`, 400, "a", 920},
		{"/other", `{"model":` + long + `}`, 200, "a", 920},
	} {
		name := c.body[:min(len(c.body), 60)]
		status, body := post(c.path, c.body)
		if status != c.status || status == 200 && body != c.body {
			t.Errorf("%s: status %d, %d bytes: want %d, and the body as it was", name, status, len(body), c.status)
		}
		if c.model == "" {
			continue
		}
		if got := left(c.model); got != c.left {
			t.Errorf("%s: %d left, want %d", name, got, c.left)
		}
	}
	for _, c := range []struct {
		kind, body string
		status     int
	}{
		{"application/json; charset=utf-8", `{"model":"k"}`, 200},
		{"application/json;CHARSET=\"UTF-8\"", `{"model":"k"}`, 200},
		{"application/json; charset=utf-7", `{"model":"k","+AG0AbwBkAGUAbA-":"a"}`, 400}, // Express reads the model a
		{"application/json; charset=utf-7", `+AHs-"model":"k"+AH0-`, 400},
		{"application/json; charset=utf-8; charset=utf-7", `{"model":"k"}`, 400},
		{"application/json; charset*=utf-8''utf-7", `{"model":"k"}`, 400},
		{"application/json; x=\";charset=utf-8\"; charset=utf-7", `{"model":"k"}`, 400},
		{"application/json; charset=utf-16le", `{"model":"k"}`, 400},
		{"application/json; charset=ISO-8859-1", `{"model":"k"}`, 400},
		{"text/plain; charset=windows-1252", "\xa0{\"model\":\"k\"}", 400},
		{"application/x-www-form-urlencoded; charset=ISO-8859-1; charset=utf-7", `+AHs-"model":"k"+AH0-`, 400},
		{"application/x-www-form-urlencoded; charset=ISO-8859-1", `model=k`, 400},
		{"application/x-www-form-urlencoded; charset=ISO-8859-1", `x=k`, 403}, // not JSON
		{"application/x-www-form-urlencoded", "x&MODEL[]=k", 400},
		{"application/x-www-form-urlencoded", ".model=k", 400}, // Koa reads the field in this and the next bodies
		{"application/x-www-form-urlencoded", "%2emodel=k", 400},
		{"application/x-www-form-urlencoded", "model%2Ename=k", 400},
		{"", "x=1;%6dod%65l=k", 400}, // Rack reads a form
		{"text/plain", "a model of x=1&models=2", 403},
		{"text/plain;charset=windows-1252", "caf\xe9", 403},
		{"application/json\napplication/json; charset=utf-7", `{"model":"k"}`, 400},
		{"application/x-www-form-urlencoded", `{"model":"k","x":"a&b=c"}`, 200}, // curl -d sends this type
		{"application/x-www-form-urlencoded", `{"model":"k","x":"&model=a&"}`, 400},
		{"Application/X-WWW-Form-URLEncoded;x", `{"model":"k","x":";m%6fdel=a;"}`, 400},
		{"application/x-www-form-urlencoded", `{"model":"k","x":"&model[]=a&"}`, 400},
		{"application/json", `{"model":"k","x":"&model=a&"}`, 200},
		{"multipart/form-data; boundary=b", "{\"model\":\"k\"}\r\n--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n--b--\r\n", 400},
		{"multipart/form-data; boundary=b", part(`form-data; name="model"`), 400},
		{"Multipart/form-data; boundary=b", part(`form-data; name=model`), 400},
		{"multipart/form-data; boundary=b", part(`form-data; filename="x\y"; NAME='Model[a]'`), 400},
		{"multipart/form-data; boundary=b", part(`form-data; name="mo\del"`), 400},
		{"multipart/form-data; boundary=b", part("form-data;\r\n\tname = \"%6dodel\""), 400},
		{"multipart/form-data; boundary=b", part(`form-data; name*=utf-8''mod%65l`), 400},
		{"multipart/form-data; boundary=b", part(`form-data; name*0="mo"; name*1="del"`), 400},
		{"multipart/form-data; boundary=b", part(`form-data; filename="model"`), 400},                                   // for Rack
		{"multipart/form-data; boundary=b", part("form-data; name=\"\nmodel\v\""), 400},                                 // for Django
		{"application/x-www-form-urlencoded", "\ufeffmodel=k", 400},                                                     // for Express
		{"multipart/form-data; boundary=b", strings.Replace(part(`form-data; name="model"`), "\r\n", "\v", 1), 400},     // for Django
		{"multipart/form-data; boundary=b", strings.Replace(part(`form-data; name="model"`), "\r\n", "\r", 1), 400},     // for Flask
		{"multipart/form-data; boundary=b", strings.Replace(part(`form-data; name="model"`), "\nC", "\n\x1cC", 1), 400}, // for Flask
		{"multipart/form-data; boundary=b", strings.Replace(part(`form-data; name="model"`), "C", "X: y\fC", 1), 400},   // for Flask
		{"multipart/form-data; boundary=b", strings.Replace(part(`form-data; name="model"`), "C", "AC", 1), 400},        // for Rack
		{"multipart/form-data; boundary=b", part("form-data;\n\nname=\"model\""), 400},                                  // for Django
		{"multipart/form-data; boundary=b", part(`form-data; name=model(`), 400},                                        // for Rack
		{"multipart/form-data; boundary=b", part(`form-data; name=model\x`), 400},                                       // for Rack
		{"multipart/form-data; boundary=b", part("form-data; name=model\vx"), 400},                                      // for PHP
		{"multipart/form-data; boundary=b", part(`form-data; name="=?utf-8?q?mod=65l?="`), 400},                         // for Tomcat
		{"multipart/form-data", "model=k", 400},                                                                         // Rack reads the field in this and the next bodies
		{"multipart/form-data; boundary=", "x=1&model=k", 400},
		{"multipart/form-data; boundary=b", "model=k", 400},
		{"multipart/mixed; boundary=b", "--b&model=k", 400},
		{"multipart/related", "model=k", 400},
		{"multipart/form-data; boundary=b", part(`form-data; name="model-x"; filename="model.x"` + "\r\nContent-Type: model/obj"), 403},
		{"multipart/form-data; boundary=b", part(`form-data; name="file"; filename="my model.png"; filename*=UTF-8''m%C3%B6del.png`) + "\r\n &model=x name=model\r\n", 403},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat", strings.NewReader(c.body))
		r.Header["Content-Type"] = strings.Split(c.kind, "\n")
		w := httptest.NewRecorder()
		m.Config.Handler.ServeHTTP(w, r)
		if <-m.ended; w.Code != c.status {
			t.Errorf("%s: %s: status %d, want %d", c.kind, c.body, w.Code, c.status)
		}
	}
	if status, _ := post("/v1/chat", "x", "Content-Encoding"); status != 400 {
		t.Errorf("an encoded body: status %d, want 400", status)
	}
}

func part(disposition string) string {
	return "--b\r\nContent-Disposition: " + disposition + "\r\n\r\na\r\n--b--\r\n"
}

// TestRequestBodyShadow: with rules in shadow the handler gets each body as it came, even
// bodies that rules cannot read.
func TestRequestBodyShadow(t *testing.T) {
	const rules = `{"rules": [{"name": "t", "key": ["body./model"], "limits": ["1000/h"]}]}`
	var read func(*http.Request)
	m := meteringOptions(t, rules, httplimit.Options{Shadow: true}, func(_ http.ResponseWriter, r *http.Request) { read(r) })
	broken := errors.New("the client has gone")
	for _, c := range []struct {
		kind, body string
		err        error
	}{
		{"application/json", `{"model":"a"}`, nil},
		{"application/json", `{"model":"a",}`, nil},
		{"application/json", `{"model":1e999}`, nil},
		{"application/json", `{"mod`, broken},
		{"application/json", `["` + strings.Repeat("a", 1<<20) + `"]`, nil},
		{"application/json; charset=utf-16", `{"model":"a"}`, nil},
		{"multipart/form-data; boundary=b", `{"model":"a"}`, nil},
		{"text/css", `/* model */`, nil},
	} {
		read = func(r *http.Request) {
			got, err := io.ReadAll(r.Body)
			if string(got) != c.body || !errors.Is(err, c.err) {
				t.Errorf("%s: %.20s: the handler reads %d bytes and %v, want %d and %v", c.kind, c.body, len(got), err, len(c.body), c.err)
			}
		}
		var sent io.Reader = strings.NewReader(c.body)
		if c.err != nil {
			sent = io.MultiReader(sent, iotest.ErrReader(c.err))
		}
		r := httptest.NewRequest(http.MethodPost, "/", sent)
		r.Header.Set("Content-Type", c.kind)
		m.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
		<-m.ended
	}
	// For rules in shadow alone, a body that is long or has no length is not read.
	shadowed := ruled(t, policyOf(t, memstore.New(memstore.Options{}), strings.Replace(rules, `"limits"`, `"shadow": true, "limits"`, 1)), httplimit.Options{})
	for _, length := range []int64{-1, 1 << 20} {
		body := &untouched{}
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.ContentLength = length
		if shadowed.ServeHTTP(httptest.NewRecorder(), r); body.read {
			t.Errorf("a body of length %d is read before the decision", length)
		}
	}
	if faults := m.errs.Load(); faults != 7 {
		t.Errorf("%d faults of 7", faults)
	}
}

// untouched notes whether it is read.
type untouched struct{ read bool }

func (u *untouched) Read([]byte) (int, error) { u.read = true; return 0, io.EOF }

// TestHeldBodyClosed: a body that rules have looked into ends in io.EOF only if it was read
// to its end. If it is closed before, a handler that sends it on must not take a part for the
// whole.
func TestHeldBodyClosed(t *testing.T) {
	p := policyOf(t, memstore.New(memstore.Options{}), `{"rules": [{"name": "chat", "key": ["body./a"], "limits": "9/h"}]}`)
	guard := sound(t)(httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{}))
	for n, want := range map[int]error{3: http.ErrBodyReadAfterClose, 7: nil} {
		guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadFull(r.Body, make([]byte, n))
			_ = r.Body.Close()
			if rest, got := io.ReadAll(r.Body); len(rest) > 0 || got != want {
				t.Errorf("behind %d of 7 bytes: %q and %v, want %v", n, rest, got, want)
			}
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"a":1}`)))
	}
}

// TestRequestBodyPrice: reading a body does not cost more memory or time for each of its
// elements.
func TestRequestBodyPrice(t *testing.T) {
	const rules = `{"rules": [{"name": "t", "match": {"body./model": "a"}, "key": ["body./user/0/id"], "limits": ["1000/h"]}]}`
	m := metering(t, rules, func(http.ResponseWriter, *http.Request) {})
	ones := strings.Repeat("1,", 400_000) + "1"
	for _, body := range []string{
		"[" + ones + "]", `{"model":[` + ones + `]}`, `{"user":[` + ones + `],"model":"a"}`,
		`{` + strings.Repeat(`"a":1,`, 100_000) + `"model":"a"}`,
		"--b\r\nContent-Disposition: " + strings.Repeat("nameé", 170_000), // a multipart head in which each word would end with the last
		"--b\r\nContent-Disposition: " + strings.Repeat("name=", 200_000),
	} {
		allocations := testing.AllocsPerRun(1, func() {
			r := httptest.NewRequest("POST", "/", strings.NewReader(body))
			if strings.HasPrefix(body, "--b") {
				r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
			}
			m.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
			<-m.ended
		})
		if allocations > 1000 {
			t.Errorf("%.20s…: %.0f allocations", body, allocations)
		}
	}
}

// TestResponseLate: a response is settled however long it takes. If it ends after its
// reservation has, its cost above the reservation is charged.
func TestResponseLate(t *testing.T) {
	for takes, want := range map[time.Duration]struct{ cost, left int64 }{23 * time.Hour: {42, 958}, 25 * time.Hour: {300, 700}} {
		var now atomic.Int64
		now.Store(1e18)
		p := made.Policy(t, memstore.New(memstore.Options{Now: now.Load}), made.Rules(t, `{"rules": [{"name": "t", "key": [], "limits": ["1000 per month in UTC"], "cost": {"response": "/n", "reserve": 100}}]}`), policy.Options{})
		var r policy.Result
		pending, _, err := p.Begin(t.Context(), policy.Map{}, 1, false, 0, &r)
		if err != nil || pending == nil {
			t.Fatal(pending, err)
		}
		now.Add(int64(takes))
		if err := pending.Header(t.Context(), 200, nil); err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(pending, `{"n":%d}`, want.cost)
		if err := pending.End(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if err := p.Peek(t.Context(), policy.Map{}, 1, &r); err != nil || r.Rules[0].Remaining != want.left {
			t.Errorf("after %v: %d left, %v; want %d", takes, r.Rules[0].Remaining, err, want.left)
		}
	}
}

// TestFull: without room for a reservation a request is refused, with FailOpen too, so that successes
// ban nobody, and no budget passes uncharged. Nothing is charged under any limit. In shadow it passes.
func TestFull(t *testing.T) {
	for name, rule := range map[string]string{
		"limiter":  `"limits": ["9/h"]`,
		"failures": `"limits": ["2/h ban 1h"], "count": {"status": 401}`,
		"budget":   `"limits": ["1000/h"], "cost": {"response": "/n", "reserve": 100}`,
	} {
		for _, shadow := range []bool{false, true} {
			t.Run(fmt.Sprint(name, shadow), func(t *testing.T) {
				store := memstore.New(memstore.Options{MaxReservations: 2, Now: func() int64 { return 1e18 }})
				var failed []error
				o := httplimit.Options{Shadow: shadow, FailOpen: true, OnError: func(_ *http.Request, err error) { failed = append(failed, err) }}
				own := limiter(t, store, "3/h")
				p := policyOf(t, store, `{"rules": [{"name": "first", "key": ["ip"], "limits": ["9/h"], "count": {"status": 401}},
					{"name": "second", "key": [], `+rule+`}, {"name": "plain", "key": [], "limits": ["9/h"]}]}`)
				g, err := httplimit.NewPolicy(p, httplimit.ClientIP{}, o)
				held := 1
				if name == "limiter" {
					held, o.Settle = 2, back(func(int) bool { return true })
					g, err = httplimit.New(own, httplimit.IPKey(httplimit.ClientIP{}), o)
				}
				if err != nil {
					t.Fatal(err)
				}
				var others []*stint.Reservation
				for range held {
					_, other, err := limiter(t, store, "99/min").Reserve(t.Context(), "somebody else", 1, time.Hour)
					if err != nil {
						t.Fatal(err)
					}
					others = append(others, other)
				}
				handler := g(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"n": 7}`) }))
				want, retry := http.StatusServiceUnavailable, "1"
				if shadow {
					want, retry = http.StatusOK, ""
				}
				for range 5 {
					if rec := serve(handler, "/"); rec.Code != want || rec.Header().Get("Retry-After") != retry {
						t.Errorf("without room: %d, Retry-After %q", rec.Code, rec.Header().Get("Retry-After"))
					}
				}
				var r policy.Result
				d, err := own.Peek(t.Context(), "192.0.2.1", 1)
				if err = errors.Join(err, p.Peek(t.Context(), policy.Map{"ip": "192.0.2.1"}, 1, &r)); err != nil || d.Remaining != 3 || r.Rules[0].Used+r.Rules[1].Used+r.Rules[2].Used != 0 {
					t.Errorf("used: %+v, %+v, %v", d, r.Rules, err)
				}
				if len(failed) != 5 || !errors.Is(failed[0], stint.ErrFull) {
					t.Errorf("errors %v", failed)
				}
				for _, other := range others {
					if _, err := other.Cancel(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				for range 5 {
					if rec := serve(handler, "/"); rec.Code != http.StatusOK {
						t.Errorf("with room: %d", rec.Code)
					}
				}
			})
		}
	}
}

// TestOnSettlement: the hook is told what a response has cost, and how its key then stands,
// even above its limit.
func TestOnSettlement(t *testing.T) {
	for _, limit := range []string{"2_000_000 per day fixed_window", "2_000_000/d debt 4_000_000", "2_000_000 per day sliding_counter",
		"2_000_000 per day sliding_buckets parts 24", "2_000_000 per month in UTC", "2_000_000/d ban 1h"} {
		told := make(chan [3]int64, 1)
		m := meteringOptions(t, `{"rules": [{"name": "r", "key": [], "limits": ["`+limit+`", "1000 in flight"], "cost": {"response": "/n", "reserve": 10}},
			{"name": "shadow", "key": [], "shadow": true, "limits": ["9/s"], "cost": {"response": "/n", "reserve": 1}}]}`,
			httplimit.Options{OnSettlement: func(_ *http.Request, r *policy.Result) {
				e := &r.Rules[0]
				told <- [...]int64{e.Cost, e.Used, e.Limit.Capacity()}
			}}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"n": 2280010}`) })
		m.get("/")
		if got, want := <-told, [...]int64{2_280_010, 2_280_010, 2_000_000}; got != want {
			t.Errorf("%s: cost, used, of: %v, want %v", limit, got, want)
		}
		used, err := m.policy.UsedOf(t.Context(), "r", "")
		if err != nil || used[0].Used != 2_280_010 {
			t.Errorf("%s: %d used, %v", limit, used[0].Used, err)
		}
	}
}
