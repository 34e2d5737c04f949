package server_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint/service/server"
)

// FuzzBody holds the reader to encoding/json, which is more lenient: what it
// takes must be JSON and mean the same. And whatever is sent, there is an
// answer, and it is JSON.
func FuzzBody(f *testing.F) {
	for _, body := range []string{
		`{"attributes":{"method":"POST","path":"/login","ip":"192.0.2.7"},"cost":1}`,
		`{"requests":[{"attributes":{"path":"/api/a","header.X-Api-Key":"k"}},{"attributes":{},"cost":2}]}`,
		`{"reservation":"AAEa","cost":9223372036854775807}`,
		` { "attributes" : { "x" : "\ud83d\ude00\u00e9\n\"\\\/" } , "ttl" : "1m" } `,
		`{"attributes":{"a":"1","a":"2"}}`, `{"attributes":{},"cost":1e2}`, `[[[[`, "",
	} {
		for i := range server.Verbs() {
			f.Add(uint8(i), body)
		}
	}
	o := newOptions(f, someRules)
	o.Operators = writeTokens(f, operatorToken)
	h := server.NewHandler(o)
	paths := server.Verbs()
	slices.Sort(paths)
	f.Fuzz(func(t *testing.T, verb uint8, body string) {
		path := paths[int(verb)%len(paths)]
		asks, err := server.ReadCheckRequests(path, body, 100)
		if err == nil {
			sameAsJSON(t, body, asks)
		}
		w := post(h, path, body, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+operatorToken) })
		if !slices.Contains([]int{200, 400, 403, 404, 413, 429}, w.Code) || err != nil && w.Code != 400 && w.Code != 413 {
			t.Errorf("%s %q: status %d, %v", path, body, w.Code, err)
		}
		var answer map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || !utf8.Valid(w.Body.Bytes()) {
			t.Errorf("%s %q: the answer %q: %v", path, body, w.Body, err)
		}
	})
}

// sameAsJSON compares what was read with what encoding/json reads.
func sameAsJSON(t *testing.T, body string, asks []server.CheckRequest) {
	type one struct {
		Attributes  map[string]string
		Cost        *int64
		TTL         *string
		Reservation string
	}
	var all struct {
		one
		Requests []one
	}
	if err := json.Unmarshal([]byte(body), &all); err != nil || !utf8.ValidString(body) {
		t.Fatalf("taken, and no JSON: %q: %v", body, err)
	}
	want := all.Requests
	if want == nil {
		want = []one{all.one}
	}
	if len(want) != len(asks) {
		t.Fatalf("%q: %d questions, want %d", body, len(asks), len(want))
	}
	for i, a := range asks {
		w := want[i]
		attributes := map[string]string{}
		for name, value := range w.Attributes {
			if strings.HasPrefix(name, "header.") {
				name = strings.ToLower(name)
			}
			attributes[name] = value
		}
		cost, ttl := int64(1), time.Minute
		if w.Cost != nil {
			cost = *w.Cost
		}
		if w.TTL != nil {
			ttl, _ = time.ParseDuration(*w.TTL)
		}
		if !maps.Equal(a.Attributes, attributes) || a.Cost != cost || a.TTL != ttl || a.Reservation != w.Reservation {
			t.Errorf("%q: read %+v; encoding/json reads %+v", body, a, w)
		}
	}
}

// FuzzMarshalled takes what encoding/json writes, and reads back the same.
func FuzzMarshalled(f *testing.F) {
	f.Add("path", "/login", "ip", "192.0.2.7", int64(1), int64(60))
	f.Add("header.x", "\u2028<&>\x7f\x00", "a\"b", "\U0001F600", int64(1<<53-1), int64(1))
	f.Fuzz(func(t *testing.T, name, value, name2, value2 string, cost, seconds int64) {
		lower := func(s string) string {
			if strings.HasPrefix(s, "header.") {
				return strings.ToLower(s)
			}
			return s
		}
		for _, s := range []string{name, value, name2, value2} {
			if !utf8.ValidString(s) {
				t.Skip()
			}
		}
		if name == "" || name2 == "" || lower(name) == lower(name2) || cost < 0 || cost > 1<<53-1 || seconds < 1 || seconds > 86_400 {
			t.Skip()
		}
		ttl := (time.Duration(seconds) * time.Second).String()
		body, err := json.Marshal(map[string]any{"attributes": map[string]string{name: value, name2: value2}, "cost": cost, "ttl": ttl})
		if err != nil {
			t.Fatal(err)
		}
		asks, err := server.ReadCheckRequests("/v1/reserve", string(body), 100)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		want := map[string]string{lower(name): value, lower(name2): value2}
		if a := asks[0]; !maps.Equal(a.Attributes, want) || a.Cost != cost || a.TTL != time.Duration(seconds)*time.Second {
			t.Errorf("%s: read %+v", body, a)
		}
	})
}

// TestBodySizes sends bodies at the bounds and above them, with and without a length that is said.
func TestBodySizes(t *testing.T) {
	h := server.NewHandler(newOptions(t, someRules))
	sized := func(size int) string {
		const around = len(`{"attributes":{"x":""}}`)
		return `{"attributes":{"x":"` + strings.Repeat("y", size-around) + `"}}`
	}
	batch := func(n int) string {
		const one = `{"attributes":{"path":"/free"}}`
		return `{"requests":[` + strings.Repeat(one+",", n-1) + one + `]}`
	}
	for _, said := range []bool{true, false} {
		for name, one := range map[string]struct {
			body string
			want int
		}{
			"64 KiB": {sized(64 << 10), http.StatusOK}, "a byte more": {sized(64<<10 + 1), http.StatusRequestEntityTooLarge}, "1 MiB": {sized(1 << 20), http.StatusRequestEntityTooLarge},
			"100 in one": {batch(100), http.StatusOK}, "101 in one": {batch(101), http.StatusBadRequest},
		} {
			w := post(h, "/v1/check", one.body, func(r *http.Request) {
				if !said {
					r.ContentLength = -1
				}
			})
			if w.Code != one.want || one.want == http.StatusOK && strings.Count(w.Body.String(), `"allowed":true`) != max(1, strings.Count(one.body, "/free")) {
				t.Errorf("%s, length said %v: status %d, want %d: %.300s", name, said, w.Code, one.want, w.Body)
			}
		}
	}
}
