package httplimit_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"
)

// TestConnect reads a denial as the specifications of Connect and gRPC-Web say: it is
// resource_exhausted, and not the unavailable that clients make of a bare 429.
func TestConnect(t *testing.T) {
	guard := sound(t)(httplimit.New(limiter(t, nil, "1/h"), func(*http.Request) (string, bool) { return "", true }, httplimit.Options{}))
	handler := guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(method, target string, headers ...string) *httptest.ResponseRecorder {
		return recorded(handler, requestOf(method, target, "192.0.2.1:1", headers...))
	}
	ask("GET", "/") // uses it up
	envelope := func(body []byte) (flags byte, message []byte) {
		if len(body) < 5 || binary.BigEndian.Uint32(body[1:5]) != uint32(len(body)-5) {
			t.Fatalf("no frame: %q", body)
		}
		return body[0], body[5:]
	}
	connectError := func(what string, text []byte) {
		var e struct {
			Code    string
			Message string
			Details []struct{ Type, Value string }
		}
		if err := json.Unmarshal(text, &e); err != nil || e.Code != "resource_exhausted" || e.Message == "" || len(e.Details) != 2 || e.Details[0].Type != "google.rpc.RetryInfo" {
			t.Errorf("%s: %v, %s", what, err, text)
			return
		}
		for _, d := range e.Details {
			if b, err := base64.RawStdEncoding.DecodeString(d.Value); err != nil || len(b) == 0 {
				t.Errorf("%s: %s has %q, %v", what, d.Type, d.Value, err)
			}
		}
	}
	for what, w := range map[string]*httptest.ResponseRecorder{
		"unary":      ask("POST", "/a.B/C", "Content-Type: application/proto", "Connect-Protocol-Version: 1"),
		"unary JSON": ask("POST", "/a.B/C", "Content-Type: application/json", "Connect-Protocol-Version: 1", "Accept: text/plain"),
		"unary GET":  ask("GET", "/a.B/C?connect=v1&encoding=json&message=%7B%7D"),
	} {
		if w.Code != 429 || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Retry-After") == "" || w.Header().Get("RateLimit") == "" {
			t.Errorf("%s: %d %v", what, w.Code, w.Header())
		}
		connectError(what, w.Body.Bytes())
	}
	w := ask("POST", "/a.B/C", "Content-Type: application/connect+proto", "Connect-Protocol-Version: 1")
	flags, message := envelope(w.Body.Bytes())
	var end struct{ Error json.RawMessage }
	if err := json.Unmarshal(message, &end); err != nil || w.Code != 200 || flags != 2 || w.Header().Get("Content-Type") != "application/connect+proto" {
		t.Errorf("stream: %d %v %d %s, %v", w.Code, w.Header(), flags, message, err)
	}
	connectError("stream", end.Error)
	for _, kind := range []string{"application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text", "application/grpc-web-text+proto"} {
		w := ask("POST", "/a.B/C", "Content-Type: "+kind)
		body := w.Body.Bytes()
		if strings.Contains(kind, "text") {
			var err error
			if body, err = base64.StdEncoding.DecodeString(string(body)); err != nil {
				t.Fatal(err)
			}
		}
		flags, message := envelope(body)
		if w.Code != 200 || flags != 0x80 || w.Header().Get("Content-Type") != kind || !bytes.HasPrefix(message, []byte("grpc-status: 8\r\ngrpc-message: ")) || !bytes.HasSuffix(message, []byte("\r\n")) {
			t.Errorf("%s: %d %v %#x %q", kind, w.Code, w.Header(), flags, message)
		}
	}
	if w := ask("POST", "/", "Content-Type: application/json"); w.Code != 429 || !strings.Contains(w.Header().Get("Content-Type"), "json") || strings.Contains(w.Body.String(), "resource_exhausted") {
		t.Errorf("no call: %d %v %s", w.Code, w.Header(), w.Body)
	}
}
