package accesslog_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/planner/accesslog"
)

// FuzzLog reads anything as a log: nothing panics, and what is read lies in the
// years that times may have.
func FuzzLog(f *testing.F) {
	for _, test := range formats {
		f.Add([]byte(test.log))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := accesslog.From("fuzz", bytes.NewReader(data), time.Unix(1e9, 0))
		if err != nil {
			return
		}
		defer file.Close()
		format, err := file.Detect(accesslog.Options{Attributes: all})
		if err != nil {
			return
		}
		p := format.Parser()
		r := accesslog.Record{Values: make([][]byte, len(all))}
		for block, err := file.Next(nil); err == nil; block, err = file.Next(block) {
			for rest := block; len(rest) > 0; {
				var line []byte
				line, rest = accesslog.Line(rest)
				if p.Parse(line, &r) == nil && (r.At < 0 || r.At > time.Date(2203, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()) {
					t.Errorf("%q: time %d", line, r.At)
				}
			}
		}
	})
}

// commonLine is the common format, read the slow way: the first column has one
// address, or several with a comma and a blank between; the first time ends the name.
var commonLine = regexp.MustCompile(`^((?:[^ ]*, )+(?:[^ ]*[^ ,])?|[^ ]*[^ ,]) (?:- .*?|[^ ]+ [^ ]*) \[(\d\d/[A-Za-z]{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "`)

// FuzzCombined holds the parser that scans to one by regular expression.
func FuzzCombined(f *testing.F) {
	for _, test := range formats[:4] {
		f.Add(test.log)
		f.Add("192.0.2.9, " + test.log)
	}
	sample := []byte(formats[0].log)
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "\n") {
			return
		}
		o := accesslog.Options{Attributes: []string{"ip"}}
		format, err := accesslog.Detect(sample, o)
		if err != nil {
			t.Fatal(err)
		}
		r := accesslog.Record{Values: make([][]byte, 1)}
		err = format.Parser().Parse([]byte(line), &r)
		m := commonLine.FindStringSubmatch(line)
		if m == nil {
			if err == nil {
				t.Fatalf("%q is read", line)
			}
			return
		}
		at, wrong := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
		wrong2 := at.Year() < 1971 || at.Year() > 2199
		if err != nil {
			if wrong == nil && !wrong2 {
				t.Fatalf("%q is not read: %v", line, err)
			}
			return
		}
		if wrong != nil || wrong2 {
			return // a leap second, or a year at the edge
		}
		want := m[1]
		if n := len(want); n > 1 && want[0] == '"' && want[n-1] == '"' {
			want = want[1 : n-1]
		}
		if want = strings.TrimLeft(want[strings.LastIndexByte(want, ',')+1:], " "); want == "-" {
			want = ""
		}
		if r.At != at.UnixNano() || string(r.Values[0]) != want {
			t.Fatalf("%q: %q at %d, want %q at %d", line, r.Values[0], r.At, want, at.UnixNano())
		}
	})
}

// FuzzObject holds the reader of JSON lines to encoding/json.
func FuzzObject(f *testing.F) {
	f.Add(`{"time":1,"ip":"a"}`)
	f.Add(`{"time":"2024-03-05T12:00:00Z","a":{"ip":["x",{"y":null}]},"ip":"\u00e9\ud83d\ude00\n"}`)
	f.Add(`{"ip":"a","time":1,"ip":"b"}`)
	f.Fuzz(func(t *testing.T, line string) {
		format, err := accesslog.Detect([]byte(`{"time":0}`), accesslog.Options{Attributes: []string{"only"}})
		if err != nil {
			t.Fatal(err)
		}
		r := accesslog.Record{Values: make([][]byte, 1)}
		err = format.Parser().Parse([]byte(line), &r)
		var want struct {
			Time json.Number `json:"time"`
			Only *string     `json:"only"`
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal([]byte(line), &fields) != nil || json.Unmarshal([]byte(line), &want) != nil {
			return // encoding/json is stricter about what we do not look at
		}
		for name := range fields {
			if l := strings.ToLower(name); (l == "time" || l == "only") && name != l || strings.Contains(name, ".") {
				return
			}
		}
		if strings.Count(line, `"only"`) > 1 || strings.Count(line, `"time"`) > 1 || strings.Contains(line, `\u`) || len(fields) > 2 || want.Only == nil {
			return
		}
		if err != nil {
			return
		}
		if got := string(r.Values[0]); got != *want.Only && *want.Only != "-" && !strings.ContainsRune(*want.Only, '\ufffd') {
			t.Fatalf("%s: %q, want %q", line, got, *want.Only)
		}
	})
}

// FuzzPattern reads lines by patterns: nothing panics, and what a pattern takes
// of a line stands in it, in order.
func FuzzPattern(f *testing.F) {
	f.Add(`$remote_addr - $user [$time_local] "$request" $status`, `192.0.2.1 - ann [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200`)
	f.Add(`%h %l %u %t \"%r\" %>s %b`, `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5`)
	f.Add(`{"t": $msec, "a": {"b": "$remote_addr"}}`, `{"t":1431857103,"a":{"b":"192.0.2.1"}}`)
	f.Add(`$date $time|$status`, `2015-05-17 10:05:03|200`)
	f.Fuzz(func(t *testing.T, pattern, line string) {
		if _, err := accesslog.ParsePattern(pattern); err != nil {
			return
		}
		format, err := accesslog.Detect([]byte(line), accesslog.Options{Format: pattern, Attributes: []string{"user", "header.x"}})
		if err != nil || len(line) > 0 && line[0] == '{' || strings.HasPrefix(strings.TrimSpace(pattern), "{") {
			return
		}
		r := accesslog.Record{Values: make([][]byte, 2)}
		if format.Parser().Parse([]byte(line), &r) != nil {
			return
		}
		for _, v := range r.Values {
			if !strings.Contains(line, string(v)) {
				t.Errorf("%q of %q by %q", v, line, pattern)
			}
		}
	})
}
