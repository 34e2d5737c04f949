package moving

import (
	"context"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/testkit/pages"
)

// statuses sends n requests at once, from two addresses, and returns how many of
// each were let through.
func statuses(t *testing.T, make func(http.Handler) (http.Handler, error), n int) (passed [2]int, denied http.Header) {
	t.Helper()
	h, err := make(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		r := httptest.NewRequest(http.MethodGet, "/orders", nil)
		r.RemoteAddr = []string{"192.0.2.1:1234", "198.51.100.7:80"}[i%2]
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusNoContent:
			passed[i%2]++
		case http.StatusTooManyRequests:
			denied = w.Header()
		default:
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
	}
	return passed, denied
}

// The same requests pass before and after, and who is denied learns when to
// come again.
func TestSameStatuses(t *testing.T) {
	for time.Now().Second() > 50 { // a window of a minute must not end meanwhile
		time.Sleep(time.Second)
	}
	for name, pair := range map[string][2]func(http.Handler) (http.Handler, error){
		"ulule/limiter":        {ululeBefore, ululeAfter},
		"go-chi/httprate":      {httprateBefore, httprateAfter},
		"didip/tollbooth":      {tollboothBefore, tollboothAfter},
		"sethvargo/go-limiter": {golimiterBefore, golimiterAfter},
	} {
		start := time.Now()
		before, _ := statuses(t, pair[0], 240)
		after, denied := statuses(t, pair[1], 240)
		more := int(time.Since(start) / (500 * time.Millisecond)) // may pass meanwhile, of 100 a minute
		apart := max(before[0]-after[0], after[0]-before[0], before[1]-after[1], after[1]-before[1])
		if apart > more || before[0] < 99 || before[0] > 102+more {
			t.Errorf("%s: %v passed before, %v after", name, before, after)
		}
		if denied.Get("Retry-After") == "" || denied.Get("RateLimit") == "" {
			t.Errorf("%s: a denial has the fields %v", name, denied)
		}
	}
}

// Both wait as long.
func TestSameWait(t *testing.T) {
	for name, run := range map[string]func(context.Context, func()) error{"before": xtimeBefore, "after": xtimeAfter} {
		synctest.Test(t, func(t *testing.T) {
			ran, start := false, time.Now()
			if err := run(t.Context(), func() { ran = true }); err != nil || !ran || time.Since(start) != 100*time.Millisecond {
				t.Errorf("%s: %v, ran %v, after %v", name, err, ran, time.Since(start))
			}
		})
	}
}

// bodies returns what stands in the functions of a directory's files, by name.
func bodies(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, name := range files {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasSuffix(f.Name.Name, "Before") && !strings.HasSuffix(f.Name.Name, "After") {
				continue
			}
			var b strings.Builder
			if err := format.Node(&b, set, f.Body.List); err != nil {
				t.Fatal(err)
			}
			all[f.Name.Name] = b.String()
		}
	}
	return all
}

// The programs of docs/MOVING.md are those that compile here.
func TestDocsMoving(t *testing.T) {
	shown := make(map[string]bool)
	for _, block := range pages.Blocks(pages.Read(t, "docs/MOVING.md"), "go") {
		shown[strings.TrimSuffix(block, "\n")] = true
	}
	known := make(map[string]bool)
	for _, body := range bodies(t, ".") {
		known[body] = true
	}
	for body := range shown {
		if !known[body] {
			t.Errorf("docs/MOVING.md has a program that is not compiled here:\n%s", body)
		}
	}
	if len(shown) < 6 {
		t.Errorf("docs/MOVING.md has %d programs", len(shown))
	}
}
