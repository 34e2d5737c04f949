package ruletest_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/ruletest"
)

// TestSchema holds the schema for editors to the fields that are read.
func TestSchema(t *testing.T) {
	type object struct {
		Properties           map[string]any `json:"properties"`
		AdditionalProperties any            `json:"additionalProperties"`
	}
	var schema struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(ruletest.Schema), &schema); err != nil {
		t.Fatal(err)
	}
	schema.Defs["document"] = schema.object
	for name, fields := range ruletest.KnownFields {
		have := slices.Sorted(maps.Keys(schema.Defs[name].Properties))
		if want := slices.Sorted(slices.Values(fields)); !slices.Equal(have, want) {
			t.Errorf("%s: the schema has %v, the decoder %v", name, have, want)
		}
		if schema.Defs[name].AdditionalProperties != false {
			t.Errorf("%s takes further fields", name)
		}
	}
}

// write makes a rules file and a test of it in a directory of their own.
func write(t *testing.T, document, test string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sub", "it_test.yaml")
	for name, text := range map[string]string{filepath.Join(dir, "stint.yaml"): document, path: test} {
		disk.Write(t, name, text)
	}
	return path
}

const two = `
rules:
  - {name: login, match: {path: /login}, key: [ip], limits: 1/m}
`

// TestContradictions refuses expectations that no answer can meet.
func TestContradictions(t *testing.T) {
	for _, expect := range []string{
		"allowed: true, denied_by: [login]", "allowed: true, retry_after: 1s", "allowed: true, retry_after: never",
		"allowed: false, delay: 1s", "denied_by: [login], delay: 1s", "refused: ip, allowed: true",
	} {
		path := write(t, two, `{rules: ../stint.yaml, tests: [{name: a, requests: [{t: 0s, attributes: {path: /login}, expect: {`+expect+`}}]}]}`)
		if _, err := ruletest.Read(path); err == nil || !strings.Contains(err.Error(), " are expected") {
			t.Errorf("%s: %v", expect, err)
		}
	}
}

// TestRelative reads the rules beside the test file, wherever the program runs.
func TestRelative(t *testing.T) {
	path := write(t, two, `{rules: ../stint.yaml, tests: [{name: a, requests: [{t: 0s, attributes: {path: /login, ip: 192.0.2.1}, expect: {allowed: true}}]}]}`)
	f, err := ruletest.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	results, err := f.Run(t.Context())
	if err != nil || len(results) != 1 || !results[0].OK || results[0].Requests != 1 {
		t.Errorf("%+v, %v", results, err)
	}
}

// TestFresh begins each test with nothing used.
func TestFresh(t *testing.T) {
	one := `requests: [{t: 0s, attributes: {path: /login, ip: 192.0.2.1}, expect: {remaining: 0, allowed: true}}]`
	path := write(t, two, "{rules: ../stint.yaml, tests: [{name: a, "+one+"}, {name: b, "+one+"}]}")
	f, err := ruletest.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	results, err := f.Run(t.Context())
	if err != nil || len(results) != 2 || !results[0].OK || !results[1].OK {
		t.Errorf("%+v, %v", results, err)
	}
}

// TestOneInput: a query in the path and cookies in their header count as parameters and cookies
// do. A test of which no request meets a rule fails.
func TestOneInput(t *testing.T) {
	const document = `
rules:
  - {name: x, match: {query.x: "1"}, key: [], limits: 1/h}
  - {name: s, match: {cookie.s: v}, key: [], limits: 1/h}
`
	for request, want := range map[string]string{
		`{t: 0s, attributes: {path: "/a?x=1"}, expect: {matched: [x]}}`:                                  "ok",
		`{t: 0s, attributes: {path: "/a?y=1&x=%31"}, expect: {matched: [x]}}`:                            "ok",
		`{t: 0s, attributes: {path: /a, query.x: 1}, expect: {matched: [x]}}`:                            "ok",
		`{t: 0s, attributes: {header.cookie: "a=b; s=v"}, expect: {matched: [s]}}`:                       "ok",
		`{t: 0s, attributes: {path: "/a?x=1", header.cookie: "s=v"}, expect: {matched: [x, s]}}`:         "ok",
		`{t: 0s, attributes: {path: "/a?x=1&x=2"}, expect: {refused: query.x}}`:                          "ok",
		`{t: 0s, attributes: {header.cookie: "s=v; S=w"}, expect: {refused: cookie.s}}`:                  "ok",
		`{t: 0s, attributes: {path: "/a?x=2", query.x: 1}, expect: {allowed: true}}`:                     "query.x is in path, too",
		`{t: 0s, attributes: {cookie.s: v, header.cookie: s=v}, expect: {allowed: true}}`:                "cookie.s is in header.cookie, too",
		`{t: 0s, times: 5, attributes: {path: "/a?z=1", header.cookie: "t=v"}, expect: {allowed: true}}`: "matched: some rule",
		`{t: 0s, attributes: {path: /a}, expect: {allowed: true, matched: []}}`:                          "ok",
		`{t: 0s, attributes: {path: /a}}, {t: 1s, attributes: {query.x: 1}, expect: {allowed: true}}`:    "ok",
		`{t: 0s, attributes: {path: /a}, expect: {allowed: false}}`:                                      "allowed: false",
	} {
		f, err := ruletest.Read(write(t, document, "{rules: ../stint.yaml, tests: [{name: a, requests: ["+request+"]}]}"))
		got := "ok"
		if err != nil {
			got = err.Error()
		} else if results, err := f.Run(t.Context()); err != nil {
			t.Fatal(err)
		} else if !results[0].OK {
			got = results[0].Failures[0].Fields[0].Field + ": " + results[0].Failures[0].Fields[0].Want
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
}

// TestMany tells of the first failures of a test, and counts the others.
func TestMany(t *testing.T) {
	requests := strings.Repeat("{t: 0s, times: 3, attributes: {path: /login, ip: 192.0.2.1}, expect: {remaining: 7}},", 25)
	f, err := ruletest.Read(write(t, two, "{rules: ../stint.yaml, tests: [{name: a, requests: ["+requests+"]}]}"))
	if err != nil {
		t.Fatal(err)
	}
	results, err := f.Run(t.Context())
	if err != nil || len(results) != 1 || results[0].OK || len(results[0].Failures) != 10 || results[0].More != 15 {
		t.Errorf("%+v, %v", results, err)
	}
}

// TestGivenUp ends when its context does.
func TestGivenUp(t *testing.T) {
	f, err := ruletest.Read(write(t, two, "{rules: ../stint.yaml, tests: [{name: a, requests: [{t: 0s, times: 10000000, attributes: {}, expect: {allowed: true}}]}]}"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := f.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestNotFiles reads nothing that could wait or end nowhere.
func TestNotFiles(t *testing.T) {
	for _, path := range []string{"/dev/zero", "/dev/null", t.TempDir(), "absent.yaml", write(t, two, "rules: /dev/zero\ntests: []"), write(t, two, "")} {
		_, err := ruletest.Read(path)
		if _, ok := errors.AsType[*rules.Error](err); !ok {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// FuzzDecode reads anything, and runs what is good for a short while.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"contract", "good", "failing", "wrong", "contradictions", "nothing", "far"} {
		data, err := os.ReadFile("../../cmd/stint/testdata/ruletests/" + name + "_test.yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"rules": "stint.yaml", "tests": [{"name": 1, "requests": [{"t": 0, "times": 1, "attributes": {"ip": "::ffff:192.0.2.1%25eth0"}, "expect": {"retry_after": "never"}}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := ruletest.Decode("../../cmd/stint/testdata/ruletests/fuzz_test.yaml", data)
		if err != nil {
			if _, ok := errors.AsType[*rules.Error](err); !ok || err.Error() == "" {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		for i := range file.Tests {
			for k := range file.Tests[i].Requests {
				r := &file.Tests[i].Requests[k]
				r.Times = min(r.Times, 100)
			}
		}
		results, err := file.Run(t.Context())
		if err != nil && !strings.Contains(err.Error(), "line ") {
			t.Fatal(err)
		}
		for _, r := range results {
			for k := range r.Failures {
				_ = r.Failures[k].Text("x")
			}
		}
	})
}

// TestLasts has requests in flight for as long as they last, and no longer.
func TestLasts(t *testing.T) {
	at := func(t, lasts, expect string) string {
		return "{t: " + t + ", lasts: " + lasts + ", attributes: {ip: 192.0.2.1}, expect: {" + expect + "}},"
	}
	f, err := ruletest.Read(write(t, "rules: [{name: pool, key: [], limits: [2 in flight]}]", "{rules: ../stint.yaml, tests: [{name: a, requests: ["+
		at("0s", "10s", "remaining: 1")+at("1s", "5s", "remaining: 0")+at("2s", "5s", "allowed: false, denied_by: [pool], retry_after: 1s")+
		at("6s", "0s", "remaining: 0")+at("6s", "4s", "remaining: 0")+at("9s", "1s", "allowed: false")+at("10s", "1s", "remaining: 1")+"]}]}"))
	if err != nil {
		t.Fatal(err)
	}
	results, err := f.Run(t.Context())
	if err != nil || len(results) != 1 || !results[0].OK {
		t.Errorf("%+v, %v", results, err)
	}
}

// TestSent: the bytes of a body are part of its cost, within bounds.
func TestSent(t *testing.T) {
	f, err := ruletest.Read(write(t, "rules: [{name: tokens, key: [], limits: 1000/h, cost: {attribute: body./max_tokens, sent: 3, default: 5, max: 50}}]", `rules: ../stint.yaml
tests:
  - name: a part for what is sent
    requests:
      - {t: 0s, attributes: {body./max_tokens: 7}, sent: 10, expect: {remaining: 989}}
      - {t: 0s, attributes: {body./max_tokens: 7}, expect: {remaining: 982}}
      - {t: 0s, attributes: {path: /}, sent: 1, expect: {remaining: 976}}
      - {t: 0s, attributes: {path: /}, sent: 1000000, expect: {remaining: 926}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if results, err := f.Run(t.Context()); err != nil || len(results) != 1 || !results[0].OK {
		t.Errorf("%+v, %v", results, err)
	}
}

// TestResponse charges what a response says once it has ended: a status that does not count
// gives back, a body or a header costs more or less, and without one the reservation stands.
func TestResponse(t *testing.T) {
	f, err := ruletest.Read(write(t, `{"rules": [
		{"name": "tokens", "match": {"path": "/t"}, "key": [], "limits": "100/h", "cost": {"usage": "openai", "reserve": 10}},
		{"name": "header", "match": {"path": "/h"}, "key": [], "limits": "100/h", "cost": {"response": "header.x-cost", "reserve": 10}},
		{"name": "login", "match": {"path": "/l"}, "key": [], "limits": "5/h", "count": {"status": "4xx"}}]}`, `rules: ../stint.yaml
tests:
  - name: as it says
    requests:
      - {t: 0s, attributes: {path: /t}, response: {body: '{"usage": {"total_tokens": 40}}'}, expect: {remaining: 90}}
      - {t: 0s, attributes: {path: /t}, response: {body: '{"usage": {"total_tokens": 3}}'}, expect: {remaining: 50}}
      - {t: 0s, attributes: {path: /t}, response: {}, expect: {remaining: 47}}
      - {t: 0s, attributes: {path: /t}, response: {headers: {content-encoding: gzip}, body: '{"usage": {"total_tokens": 3}}'}, expect: {remaining: 37}}
      - {t: 0s, attributes: {path: /t}, expect: {remaining: 27}}
      - {t: 0s, attributes: {path: /h}, response: {headers: {X-Cost: 1}}, expect: {remaining: 90}}
      - {t: 0s, attributes: {path: /h}, expect: {remaining: 89}}
      - {t: 0s, times: 9, attributes: {path: /l}, response: {status: 200}, expect: {allowed: true, remaining: 4}}
      - {t: 0s, times: 5, attributes: {path: /l}, response: {status: 404}, expect: {allowed: true}}
      - {t: 0s, attributes: {path: /l}, response: {status: 200}, expect: {denied_by: login}}
  - name: when it has ended
    requests:
      - {t: 0s, lasts: 2s, attributes: {path: /l}, response: {status: 200}, expect: {remaining: 4}}
      - {t: 1s, attributes: {path: /l}, response: {status: 200}, expect: {remaining: 3}}
      - {t: 2s, attributes: {path: /l}, response: {status: 200}, expect: {remaining: 4}}
  - name: what lasts long is settled as well
    requests:
      - {t: 0s, lasts: 11m, attributes: {path: /l}, response: {status: 200}, expect: {remaining: 4}}
      - {t: 11m, attributes: {path: /l}, response: {status: 200}, expect: {remaining: 4}}
      - {t: 12m, lasts: 11m, attributes: {path: /h}, response: {headers: {X-Cost: 50}}, expect: {remaining: 90}}
      - {t: 23m, attributes: {path: /h}, expect: {remaining: 50}}
`))
	if err != nil {
		t.Fatal(err)
	}
	results, err := f.Run(t.Context())
	if err != nil || len(results) != 3 {
		t.Fatal(results, err)
	}
	for _, r := range results {
		if !r.OK {
			t.Errorf("%s: %+v", r.Name, r.Failures)
		}
	}
}
