package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/pages"
)

// TestLoginRecipe guesses at the login of docs/HTTP.md, and does something else after each guess:
// no more guesses pass by it, also for who logs in to an account of their own. A success clears
// the failures of its account.
func TestLoginRecipe(t *testing.T) {
	o := httplimit.Options{
		Settle: func(status int, h http.Header, cost int64) int64 {
			switch {
			case h.Get("Location") == "/?welcome": // where success alone leads
				return httplimit.Forget
			case status == http.StatusOK: // the page, and no failure
				return 0
			}
			return cost
		},
	}
	block := pages.Blocks(pages.Read(t, "docs/HTTP.md"), "go")[2]
	if own := strings.ReplaceAll(pages.Read(t, "httplimit/login_test.go"), "\n\t\t", "\n"); !strings.Contains(own, "\n"+block) {
		t.Errorf("docs/HTTP.md has a recipe that is not tried here:\n%s", block)
	}
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.RawQuery == "panic":
			panic(http.ErrAbortHandler)
		case r.URL.RawQuery == "bad":
			w.WriteHeader(http.StatusBadRequest)
		case r.URL.RawQuery == "session":
			http.Redirect(w, r, "/", http.StatusSeeOther)
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			_, _ = w.Write([]byte("the page"))
		case r.PostFormValue("password") == "sesame of "+r.PostFormValue("user"):
			http.Redirect(w, r, "/?welcome", http.StatusSeeOther)
		default:
			http.Redirect(w, r, "/login?failed", http.StatusSeeOther)
		}
	})
	byAccount := func(r *http.Request) (string, bool) { return r.PostFormValue("user"), true }
	ask := func(h http.Handler, method, query, form string) (to string) {
		defer func() { _ = recover() }()
		r := httptest.NewRequest(method, "/login?"+query, strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Header().Get("Location")
	}
	guarded := func(key httplimit.Key) http.Handler {
		g, err := httplimit.New(limiter(t, frozen(t), "3 per hour sliding_log"), key, o)
		if err != nil {
			t.Fatal(err)
		}
		return g(site)
	}
	const guess = "user=anna&password=1234"
	for _, between := range [][3]string{{"GET"}, {"HEAD"}, {"GET", "session"}, {"POST", "session", guess}, {"POST", "bad", guess}, {"POST", "panic", guess}, {"POST", "", "user=eve&password=sesame+of+eve"}} {
		for by, key := range map[string]httplimit.Key{"account": byAccount, "address": everybody} {
			if by == "address" && between[2] != "" && between[2] != guess {
				continue // as the page warns
			}
			h, passed := guarded(key), 0
			for range 100 {
				if ask(h, "POST", "", guess) == "/login?failed" {
					passed++
				}
				ask(h, between[0], between[1], between[2])
			}
			if passed < 1 || passed > 3 {
				t.Errorf("by %s, with %q in between, %d guesses of 100 pass under 3 per hour", by, between, passed)
			}
		}
	}
	h := guarded(byAccount)
	for i, form := range []string{guess, guess, "user=anna&password=sesame+of+anna", guess, guess, guess} {
		if ask(h, "POST", "", form) == "" {
			t.Errorf("request %d is denied, though a success has cleared the failures before", i)
		}
	}
}
