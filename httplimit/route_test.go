package httplimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stint-dev/stint/httplimit"
)

// TestNoRoute guards a mux from outside, where RouteKey finds no route, and from
// inside: clients never share a key because of it.
func TestNoRoute(t *testing.T) {
	byIP := httplimit.IPKey(httplimit.ClientIP{})
	for _, c := range []struct {
		what           string
		key            httplimit.Key
		o              httplimit.Options
		outside        []int // statuses of five requests of as many clients
		errors, passed int
	}{
		{"alone", httplimit.RouteKey(), httplimit.Options{}, []int{500, 500, 500, 500, 500}, 5, 0},
		{"joined", httplimit.Join(byIP, httplimit.RouteKey()), httplimit.Options{}, []int{500, 500, 500, 500, 500}, 5, 0},
		{"joined twice", httplimit.Join(httplimit.Join(httplimit.RouteKey()), byIP), httplimit.Options{Missing: httplimit.MissingDeny}, []int{500, 500, 500, 500, 500}, 5, 0},
		{"skipped", httplimit.Join(byIP, httplimit.RouteKey()), httplimit.Options{NoRoute: httplimit.NoRouteSkip}, []int{200, 200, 200, 200, 200}, 0, 5},
		{"in shadow", httplimit.RouteKey(), httplimit.Options{Shadow: true}, []int{200, 200, 200, 200, 200}, 5, 5},
		{"another key is missing", httplimit.Join(httplimit.HeaderKey("X-Key"), httplimit.RouteKey()), httplimit.Options{Missing: httplimit.MissingDeny}, []int{403, 403, 403, 403, 403}, 0, 0},
	} {
		reported, passed := 0, 0
		c.o.OnError = func(_ *http.Request, err error) {
			if reported++; !errors.Is(err, httplimit.ErrNoRoute) {
				t.Errorf("%s: reported %v", c.what, err)
			}
		}
		guard := sound(t)(httplimit.New(limiter(t, nil, "2/h"), c.key, c.o))
		handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ })
		mux := http.NewServeMux()
		mux.Handle("GET /a/{id}", handler)
		outside := guard(mux)
		for i, want := range c.outside {
			if w := recorded(outside, requestOf("GET", "/a/1", fmt.Sprintf("192.0.2.%d:4711", i))); w.Code != want || w.Header().Get("RateLimit") != "" {
				t.Errorf("%s, request %d: %d %v, want %d", c.what, i, w.Code, w.Header(), want)
			}
		}
		if reported != c.errors || passed != c.passed {
			t.Errorf("%s: %d errors, %d passed; want %d and %d", c.what, reported, passed, c.errors, c.passed)
		}
		inside := http.NewServeMux()
		inside.Handle("GET /a/{id}", guard(handler))
		if w := recorded(inside, requestOf("GET", "/a/1", "192.0.2.1:1", "X-Key: k")); w.Code != http.StatusOK || !c.o.Shadow && w.Header().Get("RateLimit") == "" && c.o.NoRoute == httplimit.NoRouteFail {
			t.Errorf("%s, inside: %d %v", c.what, w.Code, w.Header())
		}
	}
	if _, err := httplimit.New(limiter(t, nil, "2/h"), httplimit.RouteKey(), httplimit.Options{NoRoute: 9}); err == nil {
		t.Error("an unknown word is taken")
	}
}
