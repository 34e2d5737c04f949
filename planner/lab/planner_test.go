package lab_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/planner/lab"
	"github.com/stint-dev/stint/planner/plan"
)

// shipped is the log that comes with this project.
const shipped = "../../cmd/stint/testdata/access.log.gz"

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	content := disk.Read(t, name)
	return content
}

// lines returns a log of n requests, a second apart, of two clients: the first
// sends all but every fourth.
func lines(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		who := 1
		if i%4 == 3 {
			who = 2
		}
		fmt.Fprintf(&b, "192.0.2.%d - - [17/May/2015:10:%02d:%02d +0000] \"GET /a HTTP/1.1\" 200 %d \"-\" \"-\"\n", who, 5+i/60, i%60, i)
	}
	return b.Bytes()
}

// crowd is a log of 30 clients over half an hour: enough to choose by.
func crowd() []byte {
	var b bytes.Buffer
	for i := range 1800 {
		fmt.Fprintf(&b, "192.0.2.%d - - [17/May/2015:10:%02d:%02d +0000] \"GET /a HTTP/1.1\" 200 %d \"-\" \"-\"\n", i*7%30, 5+i/60, i%60, i)
	}
	return b.Bytes()
}

func zipped(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstandard(t testing.TB, text []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	return z.EncodeAll(text, nil)
}

// post sends a log to a planner and returns the status and the answer.
func post(p http.Handler, query string, body io.Reader) (int, string) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("POST", "/v1/plan?"+query, body))
	return w.Code, w.Body.String()
}

func TestPlannerTable(t *testing.T) {
	log := lines(100)
	behind := []byte("10.0.0.9 - - [17/May/2015:10:05:00 +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"-\" \"192.0.2.1\"\n" +
		"10.0.0.9 - - [17/May/2015:10:05:01 +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"-\" \"192.0.2.2, 192.168.0.1\"\n")
	dir := t.TempDir()
	bounds := lab.PlannerOptions{MaxBody: 100_000, MaxText: 1 << 20, MaxLines: 2_000, Dir: dir}
	p := lab.NewPlanner(bounds)
	for _, c := range []struct {
		name, query string
		body        []byte
		status      int
		answer      string
	}{
		{"plain", "limit=1/m&name=web.log", log, 200, `"files":[{"name":"web.log","format":"combined","lines":100,"bad":0}]`},
		{"gzip", "limit=1/m", zipped(t, log), 200, `"requests":100,"allowed":4,"denied":96,"clients":2,`},
		{"zstd", "limit=1/m", zstandard(t, log), 200, `"requests":100,"allowed":4,"denied":96,"clients":2,`},
		{"too little to choose", "", log, 200, `"what":"too_little"`},
		{"two limits and a share", "limit=1/m&limit=100/m&deny_at_most=0%25", zipped(t, crowd()), 200, `"choice":{"target":"0% of clients"`},
		{"nothing asked", "", zipped(t, crowd()), 200, `"choice":{"target":"0.1% of clients"`},
		{"the command", "name=it's+a.log", zipped(t, crowd()), 200, `'it'\\''s a.log'"`},
		{"a name like a flag", "name=--rules", zipped(t, crowd()), 200, ` '--rules'"`},
		{"a key", "limit=1/m&key=path", log, 200, `"key":"path"`},
		{"a key that no line has", "limit=1/m&key=none", log, 200, `"missing":{"none":100}`},
		{"two keys", "limit=1/m&key=ip,path", log, 200, `"key":"ip,path"`},
		{"without one", "limit=1/m&ignore_key=192.0.2.2", log, 200, `"ignored":25`},
		{"behind proxies", "limit=1/h&trusted_proxies=10.0.0.0/8,192.168.0.1", behind, 200, `"clients":2,"clients_denied":0`},
		{"some bad lines", "limit=1/m", append([]byte("what\n"), log...), 200, `"bad":1`},
		{"cut short", "limit=1/m", zipped(t, lines(1900))[:6000], 200, `"error":"it ends early, or is damaged`},

		{"no such parameter", "limits=1/m", log, 400, `"detail":"\"limits\": there is no such parameter"`},
		{"a wrong limit", "limit=ten", log, 400, `"detail":"limit \"ten\", column 1`},
		{"too many limits", strings.Repeat("limit=1/m&", 9), log, 400, `"detail":"limit: given 9 times, want at most 8"`},
		{"given twice", "name=a&name=b", log, 400, `"detail":"name: given 2 times, want at most 1"`},
		{"empty", "key=", log, 400, `"detail":"key: want from 1 to 1000 bytes"`},
		{"no time", "latest=may", log, 400, `"detail":"latest: \"may\": want a time`},
		{"a flag of stint plan", "match=path=/b", log, 400, `"detail":"\"match\": there is no such parameter`},
		{"no share", "deny_at_most=few", log, 400, `"detail":"deny_at_most: \"few\": write a share`},
		{"no proxy", "trusted_proxies=10.0.0.0/40", log, 400, `"detail":"trusted_proxies: \"10.0.0.0/40\": `},
		{"no flag", "arrivals=1", log, 400, `"detail":"arrivals: `},
		{"no log", "", nil, 400, `"detail":"the log is empty"`},
		{"no format", "", []byte("one\ntwo\nthree\n"), 400, `"detail":"the lines are in no format that is known`},
		{"binary", "", []byte("\x7fELF\x00\x00\n"), 400, `"detail":"binary, not lines of text`},
		{"no gzip", "", []byte("\x1f\x8bxxxxxxxxxxxxxxxx"), 400, `"detail":"the log: gzip: invalid header"`},

		{"too large", "", make([]byte, 100_001), 413, `"detail":"the log is over 100000 bytes: pack it`},
		{"too many lines", "limit=1/m", zipped(t, lines(2001)), 413, `"detail":"the log has more than 2000 lines, or 1 MiB once unpacked: `},
		{"a gzip bomb", "limit=1/m", zipped(t, make([]byte, 10<<20)), 413, `"detail":"the log has more than`},
		{"a gzip bomb behind a log", "limit=1/m", zipped(t, append(lines(1000), bytes.Repeat([]byte("x"), 10<<20)...)), 413, `"detail":"the log has more than`},
		{"a zstd bomb behind a log", "limit=1/m", zstandard(t, append(lines(1000), bytes.Repeat([]byte("x"), 10<<20)...)), 413, `"detail":"the log has more than`},
		{"a bomb of lines", "limit=1/m", zipped(t, bytes.Repeat(lines(1), 10_000)), 413, `"detail":"the log has more than`},
		{"a bomb, for its arrivals", "arrivals=true", zipped(t, bytes.Repeat(lines(1), 10_000)), 413, `"detail":"the log has more than`},

		{"arrivals", "arrivals=true", lines(4), 200, `{"start":"2015-05-17T10:05:00Z","horizon":4000000000,"requests":4,"times":[0,1000000000,2000000000,3000000000]}`},
		{"arrivals of one", "arrivals=true&client=192.0.2.2", lines(8), 200, `"requests":2,"times":[0,4000000000]}`},
		{"arrivals of nobody", "arrivals=true&client=192.0.2.3", lines(8), 400, `"detail":"client: there is none in this log that is called \"192.0.2.3\""`},
		{"the edges of minutes", "arrivals=true&client=192.0.2.2", lines(1000), 200, `{"start":"2015-05-17T10:05:00Z","horizon":1000000000000,"requests":250,"times":[3000000000,`},
	} {
		status, answer := post(p, c.query, bytes.NewReader(c.body))
		if status != c.status || !strings.Contains(answer, c.answer) {
			t.Errorf("%s: %d %.400s; want %d and %s", c.name, status, answer, c.status, c.answer)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v %v", left, err)
	}
}

// TestPlannerReport: the planner's report is that of stint plan on the file.
func TestPlannerReport(t *testing.T) {
	o := plan.Options{Files: []string{shipped}, Limits: []string{"30/m", "2/s burst 20"}, Choose: &plan.Target{Share: 0.01}, Margin: 0.2}
	report, err := plan.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	report.Log.Files[0].Name = "access.log.gz"
	report.Choice.Check = strings.ReplaceAll(report.Choice.Check, shipped, "access.log.gz")
	want, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	query := url.Values{"limit": o.Limits, "deny_at_most": {"1%"}, "name": {"access.log.gz"}}.Encode()
	status, got := post(lab.NewPlanner(lab.PlannerOptions{}), query, bytes.NewReader(readFile(t, shipped)))
	if status != 200 || got != string(want)+"\n" {
		t.Errorf("%d:\n%s\nstint plan says\n%s", status, got, want)
	}
}

// TestPlannerArrivals: what a log's arrivals come to under a limit is what the
// planner says of them.
func TestPlannerArrivals(t *testing.T) {
	p := lab.NewPlanner(lab.PlannerOptions{})
	log := readFile(t, shipped)
	_, answer := post(p, "limit=30/m&limit=30/m+fixed_window", bytes.NewReader(log))
	var report plan.Report
	if err := json.Unmarshal([]byte(strings.NewReplacer(`"longest_lockout":"`, `"x":"`, `"bar":"`, `"x":"`).Replace(answer)), &report); err != nil {
		t.Fatal(err)
	}
	_, answer = post(p, "arrivals=true&client=198.51.100.162", bytes.NewReader(log))
	var a lab.Arrived
	if err := json.Unmarshal([]byte(answer), &a); err != nil {
		t.Fatal(err)
	}
	simulated, err := lab.Simulate(t.Context(), &lab.Request{
		Limits:   []string{"30/m", "30/m fixed_window"},
		Arrivals: lab.Arrivals{Shape: "list", Times: a.Times}, Horizon: time.Duration(a.Horizon).String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range simulated.Rows {
		r := report.Results[i]
		if len(r.Top) != 1 || int64(row.Denied) != r.Top[0].Denied || row.Denied == 0 || int64(row.Requests) != a.Requests {
			t.Errorf("%s: %d of %d denied on the timeline; the planner says %+v", row.Limit, row.Denied, row.Requests, r.Top)
		}
	}
	_, answer = post(p, "arrivals=true", bytes.NewReader(bytes.Repeat(lines(60), 2000)))
	if err := json.Unmarshal([]byte(answer), &a); err != nil || len(a.Times) != lab.MaxArrivals || a.Requests != 120_000 {
		t.Errorf("%v: %d of %d requests", err, len(a.Times), a.Requests)
	}
}

// TestPlannerPatience: what takes too long is reported in part, or refused.
func TestPlannerPatience(t *testing.T) {
	p := lab.NewPlanner(lab.PlannerOptions{Patience: time.Nanosecond})
	status, answer := post(p, "limit=1/m", bytes.NewReader(lines(100)))
	if status != 200 || !strings.Contains(answer, `"interrupted":true`) {
		t.Errorf("a report: %d %s", status, answer)
	}
	status, answer = post(p, "arrivals=true", bytes.NewReader(lines(100)))
	if status != 400 || !strings.Contains(answer, "this takes longer than 1ns") {
		t.Errorf("arrivals: %d %s", status, answer)
	}
}

// TestPlannerGone: who goes away while a log is sent, or read, or waits, leaves
// nothing behind, and the next one is served.
func TestPlannerGone(t *testing.T) {
	dir := t.TempDir()
	p := lab.NewPlanner(lab.PlannerOptions{Dir: dir})
	status, answer := post(p, "limit=1/m", io.MultiReader(bytes.NewReader(lines(10)), iotest.ErrReader(errors.New("reset"))))
	if status != 400 || !strings.Contains(answer, `"detail":"the log did not arrive in full, or not in time"`) {
		t.Errorf("cut off: %d %s", status, answer)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := httptest.NewRecorder()
	ends := io.MultiReader(bytes.NewReader(lines(10)), readFunc(func([]byte) (int, error) { cancel(); return 0, io.EOF }))
	p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/v1/plan?limit=1/m", ends))
	if w.Body.Len() > 0 {
		t.Errorf("gone: %d %s", w.Code, w.Body)
	}
	if status, _ := post(p, "limit=1/m", bytes.NewReader(lines(10))); status != 200 {
		t.Errorf("the next one: %d", status)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v %v", left, err)
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// TestPlannerWaits: a log waits for the one before it, for a while.
func TestPlannerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := lab.NewPlanner(lab.PlannerOptions{})
		release := lab.HoldTurn(p)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/v1/plan?limit=1/m", bytes.NewReader(lines(10))))
		if w.Body.Len() > 0 {
			t.Errorf("who went while waiting was answered: %s", w.Body)
		}
		status, answer := post(p, "limit=1/m", bytes.NewReader(lines(10)))
		if status != 503 || !strings.Contains(answer, `"detail":"another log is being read: try again when it is done"`) {
			t.Errorf("who waited: %d %s", status, answer)
		}
		release()
		if status, _ := post(p, "limit=1/m", bytes.NewReader(lines(10))); status != 200 {
			t.Errorf("the next: %d", status)
		}
	})
}

// TestPlannerDisk: a log that cannot be kept is not the sender's fault, and the
// answer does not tell of this machine.
func TestPlannerDisk(t *testing.T) {
	dir := t.TempDir() + "/none"
	status, answer := post(lab.NewPlanner(lab.PlannerOptions{Dir: dir}), "", bytes.NewReader(lines(1)))
	if status != 500 || strings.Contains(answer, dir) {
		t.Errorf("%d %s", status, answer)
	}
}
