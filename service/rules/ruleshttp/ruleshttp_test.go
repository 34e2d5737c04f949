package ruleshttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/rulesource"
	"github.com/stint-dev/stint/service/rules/ruleshttp"
)

// nothing receives what is not there.
type nothing struct{ whole bool }

func (n *nothing) Begin(_ *rulesource.Snapshot, whole bool) error { n.whole = whole; return nil }
func (*nothing) Override(*rulesource.Override) error              { return fmt.Errorf("an override") }
func (*nothing) Plan(*rulesource.Plan) error                      { return fmt.Errorf("a plan") }

// TestFollow reads, waits and reads again, also what was there before.
func TestFollow(t *testing.T) {
	var document, asked atomic.Value
	document.Store("one")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Header.Get("Authorization") + " " + r.Header.Get("If-None-Match"))
		text := document.Load().(string)
		w.Header().Set("ETag", `"`+text+`"`)
		if r.Header.Get("If-None-Match") == `"`+text+`"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	disk.Write(t, token, "secret\n")
	s, err := ruleshttp.Open(server.URL+"/rules.json?secret=1", token)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if strings.Contains(s.String(), "secret") {
		t.Errorf("shown as %s", s)
	}
	held := rulesource.Version{}
	for _, text := range []string{"one", "two", "one"} {
		document.Store(text)
		if err := s.Wait(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		var n nothing
		snapshot, err := s.Load(t.Context(), held, &n)
		if err != nil || string(snapshot.Document) != text || snapshot.Name != "rules.json" || !n.whole || !snapshot.Version.Follows(held) {
			t.Fatalf("%s: %+v, %v", text, snapshot, err)
		}
		held = snapshot.Version
	}
	if snapshot, err := s.Load(t.Context(), held, new(nothing)); err != nil || snapshot.Document != nil {
		t.Errorf("what is held already: %+v, %v", snapshot, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.Wait(ctx, held); err != context.Canceled {
		t.Errorf("nothing new: %v", err)
	}
	if got := asked.Load(); !strings.HasPrefix(got.(string), "Bearer secret ") {
		t.Errorf("asked with %q", got)
	}
}

// TestRefused has URLs and answers that are not taken.
func TestRefused(t *testing.T) {
	for _, bad := range []string{"http://192.0.2.1/stint.yaml", "ftp://127.0.0.1/a", "https://", "https://u:p@127.0.0.1/a", ":"} {
		if s, err := ruleshttp.Open(bad, ""); err == nil {
			s.Close()
			t.Errorf("%s was taken", bad)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			chunk := make([]byte, 1<<20)
			for range 33 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		case "/short":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
		case "/elsewhere":
			http.Redirect(w, r, "https://192.0.2.1/a", http.StatusMovedPermanently)
		case "/insecure":
			http.Redirect(w, r, "http://192.0.2.1/a", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	for _, path := range []string{"/large", "/short", "/elsewhere", "/insecure", "/none?secret"} {
		s, err := ruleshttp.Open(server.URL+path, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(t.Context(), rulesource.Version{}, new(nothing)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", path, err)
		} else if path == "/elsewhere" && !strings.Contains(err.Error(), "not followed") {
			t.Errorf("%s: %v does not say that it is not followed", path, err)
		}
		s.Close()
	}
}
