package simulate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/simulate"
)

// run runs lines on an empty store and returns what came back.
func run(t testing.TB, limits []string, in string) (string, error) {
	t.Helper()
	var clock simulate.Clock
	store := memstore.New(memstore.Options{Now: clock.Now})
	defer store.Close()
	r, err := simulate.New(store, &clock, limits)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = r.Run(strings.NewReader(in), &out)
	return out.String(), err
}

// The transcripts under testdata: limits, one a line, "----", lines in,
// "----", lines out and, if there is one, the error behind "error: ".
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text := disk.Read(t, file)
			part := strings.Split(string(text), "----\n")
			if len(part) != 3 {
				t.Fatalf("%d parts", len(part))
			}
			got, err := run(t, strings.FieldsFunc(part[0], func(r rune) bool { return r == '\n' }), part[1])
			if err != nil {
				got += fmt.Sprintf("error: %v\n", err)
			}
			if got != part[2] {
				t.Errorf("got:\n%swant:\n%s", got, part[2])
			}
		})
	}
}

func TestTimes(t *testing.T) {
	for _, c := range []struct {
		t  string
		at int64
		ok bool
	}{
		{"0s", 0, true},
		{"0", 0, true},
		{"1h2m3.5s", 3723500000000, true},
		{"1.5us", 1500, true},
		{"1.5µs", 1500, true},
		{"1.5μs", 1500, true},
		{".5s", 500000000, true},
		{"1.s", 1000000000, true},
		{"+3ns", 3, true},
		{"-3ns", -3, true},
		{"0.0000000010s", 1, true},
		{"9223372036854775807ns", 1<<63 - 1, true},
		{"2562047h47m16.854775807s", 1<<63 - 1, true},
		{"-9223372036854775808ns", -1 << 63, true},
		{"-2562047h47m16.854775808s", -1 << 63, true},
		{"1970-01-01T00:00:00Z", 0, true},
		{"1970-01-01T00:00:00.000000001Z", 1, true},
		{"1970-01-01T01:00:00+01:00", 0, true},
		{"1969-12-31T23:59:59.999999999Z", -1, true},
		{"2262-04-11T23:47:16.854775807Z", 1<<63 - 1, true},
		{"1677-09-21T00:12:43.145224192Z", -1 << 63, true},
		{"2026-01-01T00:00:00.100000000000Z", 1767225600100000000, true},

		{"", 0, false},
		{"-", 0, false},
		{"s", 0, false},
		{".s", 0, false},
		{"1", 0, false},
		{"1 s", 0, false},
		{"1s ", 0, false},
		{"1d", 0, false},
		{"1e3s", 0, false},
		{"--1s", 0, false},
		{"0.5ns", 0, false},
		{"0.0000000001s", 0, false},
		{"9223372036854775808ns", 0, false},
		{"-9223372036854775809ns", 0, false},
		{"2562047h47m16.854775808s", 0, false},
		{"2562048h", 0, false},
		{"18446744073709551616ns", 0, false},
		{"9223372036854775807ns9223372036854775807ns", 0, false},
		{"2262-04-11T23:47:16.854775808Z", 0, false},
		{"1677-09-21T00:12:43.145224191Z", 0, false},
		{"9999-12-31T23:59:59Z", 0, false},
		{"2026-01-01T00:00:00.1000000001Z", 0, false},
		{"2026-01-01T00:00:00,5Z", 0, false},
		{"2026-01-01T0:00:00Z", 0, false},
		{"2026-01-01T00:00:60Z", 0, false},
		{"2026-02-30T00:00:00Z", 0, false},
		{"2026-01-01T00:00:00+25:00", 0, false},
		{"2026-01-01 00:00:00Z", 0, false},
	} {
		op, err := simulate.ParseOp(fmt.Appendf(nil, `{"t":%q,"key":"a"}`, c.t))
		if ok := err == nil; ok != c.ok || op.At != c.at {
			t.Errorf("%q: %d, %v; want %d, %v", c.t, op.At, err, c.at, c.ok)
		}
	}
}

func TestBadLines(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`{}`, `"t" is missing`},
		{`{"key":"a"}`, `"t" is missing`},
		{`{"t":"0s"}`, `"key" is missing`},
		{`{"t":0,"key":"a"}`, `"t": byte 6: want text in quotes, not a number`},
		{`{"t":null,"key":"a"}`, `"t": byte 6: want text in quotes, not null`},
		{`{"t":"0s","key":null}`, `"key": byte 17: want text in quotes, not null`},
		{`{"t":"0s","key":"a","Cost":1}`, `unknown field "Cost"`},
		{`{"t":"0s","key":"a","costs":1}`, `unknown field "costs"`},
		{`{"t":"0s","key":"a","cost":1,"cost":1}`, `"cost" is given twice`},
		{`{"t":"0s","key":"a","cost":-1}`, `"cost": byte 28: below zero; refund gives back`},
		{`{"t":"0s","key":"a","cost":1.5}`, `"cost": byte 28: want a whole number from 0, written in digits`},
		{`{"t":"0s","key":"a","cost":1.0}`, `"cost": byte 28: want a whole number from 0, written in digits`},
		{`{"t":"0s","key":"a","cost":1e3}`, `"cost": byte 28: want a whole number from 0, written in digits`},
		{`{"t":"0s","key":"a","cost":01}`, `byte 29: want "," or "}", not a number`},
		{`{"t":"0s","key":"a","cost":"1"}`, `"cost": byte 28: want a number, not text`},
		{`{"t":"0s","key":"a","cost":9223372036854775808}`, `"cost": byte 28: above the greatest whole number, 9223372036854775807`},
		{`{"t":"0s","key":"a","op":"give"}`, `"op": unknown op "give": write take, peek, take_up_to, reserve, settle, cancel, refund, reset or change`},
		{`{"t":"0s","key":"a","op":"Take"}`, `"op": unknown op "Take": write take, peek, take_up_to, reserve, settle, cancel, refund, reset or change`},
		{`{"t":"0s","key":"a","op":"reserve","ttl":"0s"}`, `"ttl": 0s is not above zero`},
		{`{"t":"0s","key":"a","op":"reserve","ttl":"-1s"}`, `"ttl": -1s is not above zero`},
		{`{"t":"0s","key":"a","lasts":"-1s"}`, `"lasts": -1s is below zero`},
		{`{"t":"0s","key":"a","limits":[{"limit":"5 in flight"}]}`, `limit "5 in flight" is in flight: give it to all lines`},
		{`{"t":"0s","op":"change","limits":[{"limit":"5 in flight"}]}`, `change: limits in flight are there from the first line on, or not at all`},
		{`{"t":"0s","key":"a","op":"settle","cost":1}`, `settle needs a "reservation"`},
		{`{"t":"0s","key":"a","op":"cancel"}`, `cancel needs a "reservation"`},
		{`{"t":"0s","op":"settle","reservation":"r1"}`, `settle needs a "cost", the true one`},
		{`{"t":"0s","op":"settle","reservation":"r1","cost":1}`, `unknown reservation "r1"`},
		{`{"t":"0s","op":"cancel","reservation":""}`, `unknown reservation ""`},
		{`{"t":"0s","key":"a","limits":[]}`, `"limits": none there`},
		{`{"t":"0s","key":"a","limits":{}}`, `"limits": byte 30: want a list, not an object`},
		{`{"t":"0s","limits":[{"key":"b"}]}`, `"limits": "limit" is missing`},
		{`{"t":"0s","limits":[{"limit":"5/s"}]}`, `"limits": "key" is missing`},
		{`{"t":"0s","limits":[{"limit":"5/s","key":"b","burst":1}]}`, `"limits": unknown field "burst"`},
		{`{"t":"0s","limits":[{"limit":"5/s","key":"b","key":"b"}]}`, `"limits": "key" is given twice`},
		{`{"t":"0s","limits":[{"limit":"5/s","key":"b"},{"limit":"5 per second","key":"b"}]}`,
			`stint: layers: the same key under limit "5/1s" twice`},
		{`{"t":"0s","limits":[{"limit":"5/x","key":"b"}]}`,
			`stint: limit "5/x", column 3: unknown period "x"; write s, m, h, d, w, a number of them such as "2 hours", or a duration such as 90s or 1h30m`},
		{`[]`, `byte 1: want an object, not a list`},
		{`null`, `byte 1: want an object, not null`},
		{`{"t":"0s","key":"a"`, `byte 20: the line ends where "," or "}" should be; it may be truncated`},
		{`{"t":"0s","key":"a",}`, `byte 21: want a field's name in quotes, not '}'`},
		{`{"t":"0s","key":"a"} x`, `byte 22: something follows the end of the document; one document in the line`},
		{`{"t":"0s","key":"a"}{}`, `byte 21: something follows the end of the document; one document in the line`},
		{"{\"t\":\"0s\",\"key\":\"a\"}\x00", `byte 21: something follows the end of the document; one document in the line`},
		{"\xef\xbb\xbf{}", `byte 1: want an object, not '\ufeff'`},
		{"{\"t\":\"0s\",\"key\":\"\xff\"}", `"key": byte 18: not UTF-8`},
		{"{\"t\":\"0s\",\"key\":\"\xed\xa0\x80\"}", `"key": byte 18: not UTF-8`},
		{"{\"t\":\"0s\",\"key\":\"a\tb\"}", `"key": byte 19: control character '\t' in text; write it as an escape`},
		{`{"t":"0s","key":"\x"}`, `"key": byte 18: no escape that JSON knows, or half of a surrogate pair; in JSON a backslash is written \\`},
		{`{"t":"0s","key":"\ud800"}`, `"key": byte 18: no escape that JSON knows, or half of a surrogate pair; in JSON a backslash is written \\`},
		{`{"t":"0s","key":"\udc00\ud800"}`, `"key": byte 18: no escape that JSON knows, or half of a surrogate pair; in JSON a backslash is written \\`},
		{`{"t":"0s","key":"\ud800\ud800"}`, `"key": byte 18: no escape that JSON knows, or half of a surrogate pair; in JSON a backslash is written \\`},
		{`{"t":"0s","key":"\u00g0"}`, `"key": byte 18: no escape that JSON knows, or half of a surrogate pair; in JSON a backslash is written \\`},
		{`{"t":"0s","key":"a`, `"key": byte 19: the line ends where the quote that ends the text should be; it may be truncated`},
	} {
		out, err := run(t, []string{"5/s"}, `{"t":"0s","key":"before"}`+"\n\n"+c.line+"\n"+`{"t":"0s","key":"after"}`)
		var bad *simulate.LineError
		if !errors.As(err, &bad) || bad.Line != 3 {
			t.Errorf("%s: %v; want a line error", c.line, err)
			continue
		}
		if strings.Count(out, "\n") != 1 {
			t.Errorf("%s: %d answers, want the one before it", c.line, strings.Count(out, "\n"))
		}
		if bad.Err.Error() != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.line, bad.Err, c.want)
		}
	}
}

func TestWithoutLimits(t *testing.T) {
	_, err := run(t, nil, `{"t":"0s","key":"a"}`)
	if err == nil || !strings.Contains(err.Error(), "line 1: no limits") {
		t.Error(err)
	}
	var clock simulate.Clock
	store := memstore.New(memstore.Options{Now: clock.Now})
	defer store.Close()
	for _, limits := range [][]string{{"5/x"}, {"5/s", "5 per second"}} {
		if _, err := simulate.New(store, &clock, limits); err == nil {
			t.Errorf("%q: no error", limits)
		}
	}
}

func TestLongLines(t *testing.T) {
	line := func(n int) string { // of n bytes
		const frame = `{"t":"0s","key":""}`
		return frame[:len(frame)-2] + strings.Repeat("k", n-len(frame)) + frame[len(frame)-2:]
	}
	for _, end := range []string{"", "\n", "\r\n"} {
		out, err := run(t, []string{"5/s"}, line(simulate.MaxLine)+end)
		if err != nil || len(out) < simulate.MaxLine {
			t.Errorf("%d bytes, %v", len(out), err)
		}
	}
	for _, more := range []int{1, 2, 3, 100_000} {
		out, err := run(t, []string{"5/s"}, line(100)+"\n"+line(simulate.MaxLine+more)+"\n")
		if strings.Count(out, "\n") != 1 || err == nil || err.Error() != "line 2: longer than 16 MiB" {
			t.Errorf("%d more: %d bytes, %v", more, len(out), err)
		}
	}
}

// A caller that waits for each answer before it asks on gets it.
func TestConversation(t *testing.T) {
	var clock simulate.Clock
	store := memstore.New(memstore.Options{Now: clock.Now})
	defer store.Close()
	r, err := simulate.New(store, &clock, []string{"2/s"})
	if err != nil {
		t.Fatal(err)
	}
	askR, askW := io.Pipe()
	tellR, tellW := io.Pipe()
	done := make(chan error)
	go func() { done <- r.Run(askR, tellW) }()
	answers := json.NewDecoder(tellR)
	for i := range 3 {
		if _, err := io.WriteString(askW, `{"t":"0s","key":"a"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		var a struct{ Allowed bool }
		if err := answers.Decode(&a); err != nil || a.Allowed != (i < 2) {
			t.Fatal(i, a, err)
		}
	}
	askW.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

type failing struct{ after int }

func (f *failing) Write(p []byte) (int, error) {
	if f.after -= len(p); f.after < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestFailingOutput(t *testing.T) {
	var clock simulate.Clock
	store := memstore.New(memstore.Options{Now: clock.Now})
	defer store.Close()
	r, err := simulate.New(store, &clock, []string{"2/s"})
	if err != nil {
		t.Fatal(err)
	}
	in := strings.Repeat(`{"t":"0s","key":"a"}`+"\n", 100_000)
	if err := r.Run(strings.NewReader(in), &failing{1 << 20}); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
}

func TestClock(t *testing.T) {
	var c simulate.Clock
	for _, step := range []struct{ to, now int64 }{{-5, 0}, {7, 7}, {3, 7}, {8, 8}} {
		if c.Advance(step.to); c.Now() != step.now {
			t.Errorf("at %d: %d, want %d", step.to, c.Now(), step.now)
		}
	}
}

func TestVectorsReportMismatches(t *testing.T) {
	const file = `{"limits": ["2/s"], "about": "wrong on purpose"}
{"t": "0s", "key": "a", "want": {"allowed": true, "remaining": 1, "reset_after": "500000us", "delay": "0s", "denied_by": []}}

{"t": "0s", "key": "a", "cost": 2, "want": {"allowed": true, "remaining": 2, "retry_after": "never", "delay": "1s", "denied_by": ["2/s", "x"]}}
`
	var clock simulate.Clock
	store := memstore.New(memstore.Options{Now: clock.Now})
	defer store.Close()
	got, err := simulate.RunVectors(store, &clock, 1, strings.NewReader(file))
	want := []string{
		"line 4: allowed is false, want true",
		"line 4: remaining is 1, want 2",
		`line 4: retry_after is "500ms", want "never"`,
		`line 4: delay is not there, want "1s"`,
		`line 4: denied_by is ["2/s"], want ["2/s", "x"]`,
	}
	if fmt.Sprintf("%v", got) != fmt.Sprintf("%v", want) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for file, want := range map[string]string{
		"":       "no vectors",
		"{}\n{}": `line 2: want: unexpected end of JSON input`,
		"{}\n" + `{"t":"0s","key":"a","want":{}}`:                                 `line 2: no limits: give some to all lines, or "limits" to this one`,
		"{}\n\n" + `{"t":"0s","keys":1,"want":{}}`:                                `line 3: unknown field "keys"`,
		`{"limits":["2/s"]}` + "\n" + `{"t":"0s","key":"a","want":{"remains":1}}`: `line 2: want: unknown field "remains"`,
	} {
		if _, err := simulate.RunVectors(store, &clock, 1, strings.NewReader(file)); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", file, err, want)
		}
	}
}
