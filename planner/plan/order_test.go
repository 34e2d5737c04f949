package plan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/planner/plan"
)

func csv(rows ...string) []byte {
	return []byte("time,ip,path,user\n" + strings.Join(rows, "\n") + "\n")
}

// Lines are put in order, however late they stand.
func TestReorder(t *testing.T) {
	log := csv(
		"2024-01-01T00:00:10Z,a,/,u", "2024-01-01T00:00:00Z,a,/,u", "2024-01-01T00:00:05Z,a,/,u",
		"2024-01-01T00:02:00Z,a,/,u", "2024-01-01T00:05:00Z,a,/,u", "2024-01-01T00:01:00Z,a,/,u",
	)
	r := planText(t, log, plan.Options{Limits: []string{"1/10s"}, Brief: true})
	if got := r.Results[0]; r.Log.Reordered != 3 || got.Requests != 6 || got.Denied != 1 {
		t.Errorf("%d of %d denied, %d put back; want 1 of 6, 3", got.Denied, got.Requests, r.Log.Reordered)
	}
}

// What does not fit into memory is an error, which says what to do.
func TestMostEvents(t *testing.T) {
	defer plan.SetMostEvents(999)()
	for n, want := range map[int]bool{999: true, 1000: false} {
		_, err := plan.Run(t.Context(), plan.Options{Files: []string{"-"}, Stdin: bytes.NewReader(plain(n, 50, combined))})
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "over 999 requests, more than are kept in memory: take a part, such as with --from") {
			t.Errorf("%d requests: %v", n, err)
		}
	}
}

// A log says the same in any order: newest first, shuffled, and the logs of
// three servers in a row.
func TestAnyOrder(t *testing.T) {
	var log bytes.Buffer
	if err := writeSample(&log, sampleOptions{Requests: 30_000, Clients: 300, Plain: true}); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(log.String(), "\n"), "\n")
	lines[len(lines)-1] += "\n"
	newest := slices.Clone(lines)
	slices.Reverse(newest)
	shuffled := slices.Clone(lines)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	var servers [3][]string
	for i, line := range lines {
		servers[i%3] = append(servers[i%3], line)
	}
	row := slices.Concat(servers[:]...)
	o := plan.Options{Limits: []string{"30/m", "2/s burst 20", "100/h"}, Choose: &plan.Target{Share: 0.01}}
	want := planText(t, log.Bytes(), o)
	for name, order := range map[string][]string{"newest first": newest, "shuffled": shuffled, "three servers": row} {
		got := planText(t, []byte(strings.Join(order, "")), o)
		if got.Log.Requests != want.Log.Requests || got.Log.Reordered == 0 {
			t.Errorf("%s: %+v", name, got.Log)
		}
		for i, r := range got.Results {
			if outcomeOf(r) != outcomeOf(want.Results[i]) {
				t.Errorf("%s: %+v, want %+v", name, outcomeOf(r), outcomeOf(want.Results[i]))
			}
		}
		if !reflect.DeepEqual(got.Traffic.Busiest, want.Traffic.Busiest) || got.Choice.Limit != want.Choice.Limit {
			t.Errorf("%s: busiest %v, want %v", name, got.Traffic.Busiest, want.Traffic.Busiest)
		}
	}
}

// Files that begin in order and of which one goes back are sorted too.
func TestFileGoesBack(t *testing.T) {
	dir := t.TempDir()
	var first, second strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&first, "192.0.2.1 - - [17/May/2015:%02d:%02d:%02d +0000] \"GET / HTTP/1.1\" 200 5\n", 10+i/3600, i/60%60, i%60)
		at := (i + 10_000) % 20_000
		fmt.Fprintf(&second, "192.0.2.2 - - [17/May/2015:%02d:%02d:%02d +0000] \"GET / HTTP/1.1\" 200 5\n", 10+at/3600, at/60%60, at%60)
	}
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := errors.Join(os.WriteFile(a, []byte(first.String()), 0o600), os.WriteFile(b, []byte(second.String()), 0o600)); err != nil {
		t.Fatal(err)
	}
	r, err := plan.Run(t.Context(), plan.Options{Files: []string{b, a}, Limits: []string{"1/s"}, Brief: true})
	if err != nil || r.Results[0].Denied != 0 || r.Log.Requests != 40_000 {
		t.Errorf("%v: %+v", err, r)
	}
}

// Which lines count, and whose they are.
func TestQuestion(t *testing.T) {
	log := csv(
		"2024-01-01T00:00:00Z,192.0.2.1,/api/a,ann", "2024-01-01T00:00:01Z,192.0.2.1,/api/b,", "2024-01-01T00:00:02Z,192.0.2.2,/,bob",
		"2024-01-01T00:00:03Z,2001:db8::1,/api/a,ann", "2024-01-01T00:00:04Z,2001:db8::ffff:2,/api/%2e%2e/x,ann",
		"2024-01-01T00:00:05Z,::ffff:192.0.2.1,/API,bob",
	)
	day := func(text string) time.Time {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, test := range []struct {
		name     string
		o        plan.Options
		requests int64
		clients  int64
		heaviest string
	}{
		{"by address", plan.Options{}, 6, 3, "192.0.2.1"},
		{"by user", plan.Options{Key: []string{"user"}}, 6, 3, "ann"},
		{"by both", plan.Options{Key: []string{"ip", "user"}}, 6, 5, "2001:db8::/64 ann"},
		{"by path", plan.Options{Key: []string{"path"}}, 6, 5, "/api/a"},
		{"matched", plan.Options{Match: []string{"path=/api/**"}}, 3, 2, "192.0.2.1"},
		{"any of two", plan.Options{Match: []string{"path=/", "path=/API"}}, 2, 2, "192.0.2.2"},
		{"all of two", plan.Options{Match: []string{"path=/api/**", "user=ann"}}, 2, 2, "192.0.2.1"},
		{"from", plan.Options{From: day("2024-01-01T00:00:02Z")}, 4, 3, "2001:db8::/64"},
		{"to", plan.Options{To: day("2024-01-01T00:00:02Z")}, 2, 1, "192.0.2.1"},
		{"without one", plan.Options{IgnoreKeys: []string{"2001:db8::/64"}}, 4, 2, "192.0.2.1"},
	} {
		r := planText(t, log, test.o)
		tr := r.Traffic
		if tr.Requests != test.requests || tr.Clients != test.clients || tr.Heaviest[0].Key != test.heaviest || r.Log.Clients != test.clients {
			t.Errorf("%s: %d requests of %d clients, heaviest %q; want %d of %d, %q", test.name, tr.Requests, tr.Clients, tr.Heaviest[0].Key, test.requests, test.clients, test.heaviest)
		}
	}
	for _, match := range []string{"path", "=x", "path=[", "ip=notanaddress"} {
		_, err := plan.Run(context.Background(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(string(log)), Match: []string{match}})
		if err == nil {
			t.Errorf("condition %q is taken", match)
		}
	}
}

// Keys of several attributes never meet.
func TestKeysNeverMeet(t *testing.T) {
	log := csv("2024-01-01T00:00:00Z,a_b,c,", "2024-01-01T00:00:00Z,a,b_c,", "2024-01-01T00:00:00Z,a b,c,", "2024-01-01T00:00:00Z,a,b c,", "2024-01-01T00:00:00Z,"+strings.Repeat("x", 300)+",c,")
	if r := planText(t, log, plan.Options{Key: []string{"ip", "path", "user"}}); r.Log.Clients != 5 {
		t.Errorf("%d clients, want 5", r.Log.Clients)
	}
}

// An empty log is no error, a binary one is, and so is one that is mostly bad.
func TestNoLog(t *testing.T) {
	r := planText(t, nil, plan.Options{Limits: []string{"1/s"}, Choose: &plan.Target{}})
	if r.Log.Requests != 0 || r.Choice != nil || len(r.Results) != 1 {
		t.Errorf("an empty log: %+v", r)
	}
	r = planText(t, nil, plan.Options{Limits: []string{"1/s"}})
	text := new(strings.Builder)
	if err := errors.Join(r.Text(text), r.HTML(text), json.NewEncoder(text).Encode(r)); err != nil || !strings.Contains(text.String(), "NOT TO BE TRUSTED: nothing to go by: no request") || strings.Contains(text.String(), " 1970 ") || strings.Contains(text.String(), " 0001 ") || strings.Contains(text.String(), `"from":`) {
		t.Errorf("%v\n%s", err, text)
	}
	good := `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	for name, log := range map[string]string{
		"binary":     "\x00\x01\x02\n",
		"mostly bad": strings.Repeat(good, 200) + strings.Repeat("nonsense\n", 300),
	} {
		if _, err := plan.Run(context.Background(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(log)}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	r = planText(t, []byte(strings.Repeat(good, 200)+strings.Repeat("nonsense\n", 100)), plan.Options{})
	if r.Log.Bad != 100 || len(r.Log.Examples) != 3 || !strings.Contains(r.Log.Examples[0], `"nonsense"`) {
		t.Errorf("%+v", r.Log)
	}
}

// endless is a log that never ends.
type endless struct {
	n    int
	stop context.CancelFunc
}

func (e *endless) Read(p []byte) (int, error) {
	if e.n++; e.n == 50 {
		e.stop()
	}
	line := fmt.Sprintf("192.0.2.%d - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n", e.n%200)
	return copy(p, strings.Repeat(line, len(p)/len(line)+1)), nil
}

// A silent pipe gives some lines and then nothing.
type silent struct {
	lines string
	sent  chan struct{}
	end   chan struct{}
}

func (s *silent) Read(p []byte) (int, error) {
	if s.lines == "" {
		close(s.sent)
		<-s.end
		return 0, io.EOF
	}
	n := copy(p, s.lines)
	s.lines = s.lines[n:]
	return n, nil
}

// One who waits for a pipe that is silent and gives up gets what came.
func TestSilentPipe(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	s := &silent{sent: make(chan struct{}), end: make(chan struct{})}
	defer close(s.end)
	s.lines = strings.Repeat("192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n", 500)
	go func() {
		<-s.sent
		stop()
	}()
	r, err := plan.Run(ctx, plan.Options{Files: []string{"-"}, Stdin: s, Limits: []string{"1/s"}})
	if err != nil || !r.Log.Interrupted || r.Log.Requests != 500 || r.Results[0].Denied != 499 {
		t.Errorf("%v, %+v", err, r)
	}
}

// When it is interrupted, it reports what it has read.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	r, err := plan.Run(ctx, plan.Options{Files: []string{"-"}, Stdin: &endless{stop: stop}, Limits: []string{"1/s"}})
	if err != nil || !r.Log.Interrupted || r.Log.Requests == 0 || r.Results[0].Requests != r.Log.Requests {
		t.Errorf("%v, %+v", err, r)
	}
}

// A million clients: what each costs is what the report says, and that is
// within what the documents say.
func TestMillionClients(t *testing.T) {
	if race.On {
		t.Skip("it measures memory: make test runs it without the race detector")
	}
	need.Time(t)
	const n = 1_000_000
	var log strings.Builder
	for i := range n {
		fmt.Fprintf(&log, "10.%d.%d.%d - - [17/May/2015:10:%02d:%02d +0000] \"GET / HTTP/1.1\" 200 5\n", i>>16, i>>8&255, i&255, i/60000%60, i/1000%60)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := planText(t, []byte(log.String()), plan.Options{Limits: []string{"1/s", "10/s"}, Brief: true})
	runtime.ReadMemStats(&after)
	if r.Log.Clients != n {
		t.Fatalf("%d clients, want %d", r.Log.Clients, n)
	}
	perClient, perLimit := float64(r.Log.Memory)/n, float64(r.Log.States)/n/2
	t.Logf("%.1f bytes a client, %.1f a client and limit", perClient, perLimit)
	if perClient > 60 || perLimit > 13 {
		t.Errorf("%.1f bytes a client and %.1f a client and limit: docs/PLAN.md says less", perClient, perLimit)
	}
}

// A played pipe is opened once it is written to, gives its text and is silent
// until the end.
type played struct {
	text string
	end  chan struct{}
}

func (p *played) Read(b []byte) (int, error) {
	if p.text == "" {
		<-p.end
		return 0, io.EOF
	}
	n := copy(b, p.text)
	p.text = p.text[n:]
	return n, nil
}

func (p *played) Close() error { return nil }

// One who gives up on pipes that are silent gets all that each has sent, and the
// whole of the files that waited for them.
func TestSilentPipes(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one worker: none waits for another, which would keep the clock of the bubble
	dir := t.TempDir()
	lines := func(host, n int) string {
		return strings.Repeat(fmt.Sprintf("192.0.2.%d - - [17/May/2015:10:05:%02d +0000] \"GET / HTTP/1.1\" 200 5\n", host, host), n)
	}
	file, some, more, none := filepath.Join(dir, "file"), filepath.Join(dir, "some"), filepath.Join(dir, "more"), filepath.Join(dir, "none")
	for name, text := range map[string]string{file: lines(1, 300)} {
		disk.Write(t, name, text)
	}
	for _, name := range []string{some, more, none} {
		if err := os.Symlink(os.DevNull, name); err != nil { // anything that is no file
			t.Skip(err)
		}
	}
	texts := map[string]string{some: lines(2, 500), more: lines(3, 9000), none: ""}
	for _, test := range []struct {
		files []string
		want  int64
	}{
		{[]string{some}, 500}, {[]string{some, more}, 9500}, {[]string{more, some}, 9500},
		{[]string{file, some}, 800}, {[]string{some, file}, 800}, {[]string{file, more}, 9300},
		{[]string{none, some, file}, 800}, {[]string{file, none}, 300}, {[]string{none}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			end := make(chan struct{})
			defer plan.SetOpenPipe(func(name string) (io.ReadCloser, error) {
				if texts[name] == "" {
					<-end // no one writes to it
				}
				return &played{texts[name], end}, nil
			})()
			ctx, stop := context.WithCancel(context.Background())
			var report *plan.Report
			var err error
			done := make(chan struct{})
			go func() {
				report, err = plan.Run(ctx, plan.Options{Files: test.files, Limits: []string{"1/s"}})
				close(done)
			}()
			synctest.Wait()
			stop()
			<-done
			close(end)
			if err != nil {
				t.Fatalf("%v: %v", test.files, err)
			}
			if !report.Log.Interrupted || report.Log.Requests != test.want || report.Results[0].Requests != test.want {
				t.Errorf("%v: %d requests, interrupted: %v; want %d", test.files, report.Log.Requests, report.Log.Interrupted, test.want)
			}
			if top := report.Results[0].Top; test.want > 0 && (len(top) != len(test.files)-strings.Count(strings.Join(test.files, " "), none) || top[0].Evidence == nil || top[0].Evidence.Requests != top[0].Requests) {
				t.Errorf("%v: denied first %+v", test.files, top)
			}
		})
	}
}
