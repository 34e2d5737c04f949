package plan_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/planner/plan"
	"github.com/stint-dev/stint/simulate"
)

// A request, found the slow way.
type request struct {
	at   int64
	key  string
	cost int64
}

// logs are those that the numbers are checked on.
func logs(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{"shipped": unzip(t, "../../cmd/stint/testdata/access.log.gz"), "made": fine()}
	if real := os.Getenv("STINT_LOG"); real != "" { // a log of yours, compressed by gzip
		all["real"] = unzip(t, real)
	}
	return all
}

func unzip(t *testing.T, name string) []byte {
	t.Helper()
	data := disk.Read(t, name)
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// fine is a log with times finer than a second, costs, and lines up to a minute
// late.
func fine() []byte {
	var b bytes.Buffer
	state := uint64(1)
	next := func(n uint64) int64 {
		state = state*6364136223846793005 + 1442695040888963407
		return int64(state >> 33 % n)
	}
	at := time.Date(2024, 3, 30, 22, 0, 0, 0, time.UTC)
	for range 4000 {
		at = at.Add(time.Duration(next(1500)) * time.Millisecond)
		late := time.Duration(0)
		if next(5) == 0 {
			late = time.Duration(next(60000)) * time.Millisecond
		}
		fmt.Fprintf(&b, `{"time":"%s","ip":"192.0.2.%d","bytes":%d}`+"\n", at.Add(-late).Format(time.RFC3339Nano), next(12)*next(12), next(4))
	}
	return b.Bytes()
}

var clf = regexp.MustCompile(`(?m)^([^ \n]+) [^[\n]*\[([^\]\n]+)\] "`)

// requests reads a log without package accesslog, in order of time.
func requests(t *testing.T, text []byte) (all []request) {
	t.Helper()
	for line := range bytes.Lines(text) {
		if line[0] == '{' {
			var l struct {
				Time  time.Time
				IP    string
				Bytes int64
			}
			if err := json.Unmarshal(line, &l); err != nil {
				t.Fatal(err)
			}
			all = append(all, request{l.Time.UnixNano(), l.IP, l.Bytes})
			continue
		}
		if m := clf.FindSubmatch(line); m != nil {
			at, err := time.Parse("02/Jan/2006:15:04:05 -0700", string(m[2]))
			if err != nil {
				t.Fatal(err)
			}
			key := string(m[1])
			if strings.Contains(key, ":") {
				key = strings.Join(strings.Split(key, ":")[:4], ":") + "::/64" // as the sample writes them
			}
			all = append(all, request{at.UnixNano(), key, 1})
		}
	}
	slices.SortStableFunc(all, func(a, b request) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	return all
}

// A judge decides by the definitions of docs/SEMANTICS.md, from all that one
// client has been admitted: no state, no engine.
type judge func(before []request, r request) bool

// period and count of the judges below.
const (
	period = int64(time.Minute)
	limit  = int64(20)
	burst  = int64(8)
	parts  = int64(60)
)

var judges = map[string]judge{
	"20/m sliding_log": func(before []request, r request) bool {
		return sum(before, func(b request) bool { return b.at > r.at-period })+r.cost <= limit
	},
	"20/m fixed_window": func(before []request, r request) bool {
		return sum(before, func(b request) bool { return b.at/period == r.at/period })+r.cost <= limit
	},
	"20/m fixed_window from first": func(before []request, r request) bool {
		begin, used := -period, int64(0)
		for _, b := range before {
			if b.cost > 0 && b.at >= begin+period {
				begin, used = b.at, 0
			}
			used += b.cost
		}
		if r.at >= begin+period {
			used = 0
		}
		return used+r.cost <= limit
	},
	"20/m sliding_counter": func(before []request, r request) bool {
		now := sum(before, func(b request) bool { return b.at/period == r.at/period })
		last := sum(before, func(b request) bool { return b.at/period == r.at/period-1 })
		return now*period+last*(period-r.at%period)+r.cost*period <= limit*period
	},
	"20/m sliding_buckets": func(before []request, r request) bool {
		part := period / parts
		return sum(before, func(b request) bool { return (b.at/part+1)*part > r.at-period })+r.cost <= limit
	},
	"20/m burst 8": func(before []request, r request) bool {
		return backlog(before, r.at)+r.cost*(period/limit) <= burst*(period/limit)
	},
	"20/m burst 8 leaky_queue": func(before []request, r request) bool {
		return backlog(before, r.at)+(r.cost-1)*(period/limit) <= burst*(period/limit)
	},
	"20/m burst 8 token_bucket_interval": func(before []request, r request) bool {
		tokens, at := burst, int64(0)
		for _, b := range append(before[:len(before):len(before)], r) {
			if fills := b.at/period - at/period; fills > 0 {
				tokens = min(burst, tokens+limit*min(fills, burst))
			}
			tokens, at = tokens-b.cost, b.at
		}
		return tokens >= 0
	},
}

func sum(before []request, counts func(request) bool) (n int64) {
	for _, b := range before {
		if counts(b) {
			n += b.cost
		}
	}
	return n
}

func backlog(before []request, at int64) int64 {
	tat := int64(0)
	for _, b := range before {
		tat = max(tat, b.at) + b.cost*(period/limit)
	}
	return max(tat-at, 0)
}

// outcome is what a result must say.
type outcome struct {
	allowed, denied, clients, clientsDenied int64
	first, firstKey                         string
	worst                                   int64
}

func (j judge) decide(all []request) (o outcome) {
	before := make(map[string][]request)
	denied := make(map[string]int64)
	for _, r := range all {
		if r.cost == 0 || j(before[r.key], r) {
			o.allowed++
			before[r.key] = append(before[r.key], r)
			continue
		}
		if o.denied++; o.denied == 1 {
			o.first, o.firstKey = time.Unix(0, r.at).UTC().Format(time.RFC3339Nano), r.key
		}
		before[r.key] = before[r.key][:len(before[r.key]):len(before[r.key])]
		denied[r.key]++
	}
	seen := make(map[string]bool)
	for _, r := range all {
		seen[r.key] = true
	}
	o.clients, o.clientsDenied = int64(len(seen)), int64(len(denied))
	for _, n := range denied {
		o.worst = max(o.worst, n)
	}
	return o
}

func outcomeOf(r plan.Result) outcome {
	o := outcome{allowed: r.Allowed, denied: r.Denied, clients: r.Clients, clientsDenied: r.ClientsDenied, firstKey: r.FirstDenied}
	if r.FirstDenial != nil {
		o.first = *r.FirstDenial
	}
	if len(r.Top) > 0 {
		o.worst = r.Top[0].Denied
	}
	return o
}

// planText runs a plan of a log in memory.
func planText(t *testing.T, text []byte, o plan.Options) *plan.Report {
	t.Helper()
	o.Files, o.Stdin = []string{"-"}, bytes.NewReader(text)
	r, err := plan.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The numbers are those of counting by the definitions, for every kind.
func TestNumbers(t *testing.T) {
	var limits []string
	for text := range judges {
		limits = append(limits, text)
	}
	slices.Sort(limits)
	for name, text := range logs(t) {
		all := requests(t, text)
		o := plan.Options{Limits: limits}
		if name == "made" {
			o.Cost = "bytes"
		}
		report := planText(t, text, o)
		if report.Log.Requests != int64(len(all)) {
			t.Fatalf("%s: %d requests; want %d", name, report.Log.Requests, len(all))
		}
		denied := int64(0)
		for i, text := range limits {
			got, want := outcomeOf(report.Results[i]), judges[text].decide(all)
			if got != want || report.Results[i].Limit != text {
				t.Errorf("%s, %s:\n%+v, want\n%+v", name, text, got, want)
			}
			denied += want.denied
		}
		if denied == 0 {
			t.Errorf("%s: nothing is denied, so nothing is tested", name)
		}
		checkTraffic(t, name, report.Traffic, all)
	}
}

// checkTraffic counts what happened again.
func checkTraffic(t *testing.T, name string, got *plan.Traffic, all []request) {
	t.Helper()
	for i, span := range []int64{1e9, 60e9, 3600e9} {
		type cell struct {
			key string
			at  int64
		}
		counts, total, most := make(map[cell]int64), make(map[int64]int64), make(map[string]int64)
		for _, r := range all {
			c := cell{r.key, r.at / span}
			counts[c]++
			total[c.at]++
			most[r.key] = max(most[r.key], counts[c])
		}
		var values []int64
		for _, n := range most {
			values = append(values, n)
		}
		slices.Sort(values)
		at := func(thousandths int) int64 { return values[(len(values)*thousandths+999)/1000-1] }
		d := got.Clocks[i]
		if d.P50 != at(500) || d.P90 != at(900) || d.P99 != at(990) || d.P999 != at(999) || d.Max != values[len(values)-1] {
			t.Errorf("%s: %+v, want %d %d %d %d %d", name, d, at(500), at(900), at(990), at(999), values[len(values)-1])
		}
		busiest := int64(0)
		for _, n := range total {
			busiest = max(busiest, n)
		}
		if b := got.Busiest[i]; b.Requests != busiest || total[b.At.UnixNano()/span] != busiest {
			t.Errorf("%s: busiest %+v, want %d", name, b, busiest)
		}
	}
	drawn := int64(0)
	for _, n := range got.Bars {
		drawn += n
	}
	if drawn != int64(len(all)) {
		t.Errorf("%s: %d requests in the bars, want %d", name, drawn, len(all))
	}
}

// The arrival curve is the least burst with which the engine denies nothing.
func TestArrivalCurve(t *testing.T) {
	for name, text := range logs(t) {
		o := plan.Options{}
		if name == "made" {
			o.Cost = "bytes"
		}
		o.Files, o.Stdin, o.Key = []string{"-"}, bytes.NewReader(text), []string{"ip"}
		rates, bursts, err := plan.LeastBursts(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for i, rate := range rates {
			o.Limits = append(o.Limits, fmt.Sprintf("%s burst %d", rate, bursts[i]), fmt.Sprintf("%s burst %d", rate, max(bursts[i]-1, 1)))
		}
		o.Brief = true
		results := planText(t, text, o).Results
		for i, burst := range bursts {
			if n := results[2*i].Denied; n != 0 {
				t.Errorf("%s: %s denies %d", name, results[2*i].Limit, n)
			}
			if n := results[2*i+1].Denied; n == 0 && burst > 1 {
				t.Errorf("%s: %s would do", name, results[2*i+1].Limit)
			}
		}
	}
}

// stint simulate decides the same lines alike, every kind with every option.
func TestAgreesWithSimulate(t *testing.T) {
	limits := []string{
		"20/m", "7/m burst 3", "every 2s", "20/m token_bucket_interval", "20/m burst 4 leaky_queue", "20/m fixed_window",
		"20/m sliding_log", "20/m sliding_log count_denied", "20/m sliding_counter", "20/m sliding_counter relaxed",
		"20/m sliding_buckets parts 7", "20/m fixed_window count_denied", "30 per day in Europe/Berlin", "60 per month in UTC",
	}
	for name, text := range logs(t) {
		all := requests(t, text)
		o := plan.Options{Limits: limits, Brief: true}
		if name == "made" {
			o.Cost = "bytes"
		}
		results := planText(t, text, o).Results
		for i, l := range limits {
			if leftOut(i) {
				continue
			}
			var clock simulate.Clock
			store := memstore.New(memstore.Options{Now: clock.Now})
			runner, err := simulate.New(store, &clock, []string{l})
			if err != nil {
				t.Fatal(err)
			}
			var in, out bytes.Buffer
			for _, r := range all {
				fmt.Fprintf(&in, `{"t":%q,"key":%q,"cost":%d}`+"\n", time.Unix(0, r.at).UTC().Format(time.RFC3339Nano), r.key, r.cost)
			}
			if err := runner.Run(&in, &out); err != nil {
				t.Fatal(err)
			}
			want := int64(bytes.Count(out.Bytes(), []byte(`"allowed":false`)))
			if results[i].Denied != want || want == 0 {
				t.Errorf("%s, %s: %d denied, by stint simulate %d", name, l, results[i].Denied, want)
			}
			store.Close()
		}
	}
}

// More limits in one pass change nothing for any of them.
func TestManyLimits(t *testing.T) {
	var limits []string
	for n := 1; n <= 70; n++ {
		limits = append(limits, stint.New(int64(n), time.Minute).WithAlgorithm(meter.Algorithm(n%7)).String())
	}
	text := fine()
	for i, got := range planText(t, text, plan.Options{Limits: limits, Brief: true}).Results {
		want := planText(t, text, plan.Options{Limits: limits[i : i+1], Brief: true}).Results[0]
		if outcomeOf(got) != outcomeOf(want) {
			t.Errorf("%s: %+v among others, alone %+v", limits[i], outcomeOf(got), outcomeOf(want))
		}
	}
}

// Several files are one log, whatever their order and however they overlap.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	var whole bytes.Buffer
	if err := writeSample(&whole, sampleOptions{Requests: 4000, Plain: true}); err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole.Bytes(), []byte("\n"))
	want := planText(t, whole.Bytes(), plan.Options{Limits: []string{"20/m"}, Brief: true})
	write := func(name string, lines [][]byte) string {
		path := filepath.Join(dir, name)
		disk.Write(t, path, string(bytes.Join(lines, nil)))
		return path
	}
	var odd, even [][]byte
	for i, l := range lines {
		if i%2 == 0 {
			even = append(even, l)
		} else {
			odd = append(odd, l)
		}
	}
	cut := len(lines) / 3
	for name, files := range map[string][]string{
		"rotated": {write("log", lines[2*cut:]), write("log.1", lines[cut:2*cut]), write("log.2", lines[:cut]), write("log.3", nil)},
		"servers": {write("even", even), write("odd", odd)},
	} {
		got, err := plan.Run(context.Background(), plan.Options{Files: files, Limits: []string{"20/m"}, Brief: true})
		if err != nil {
			t.Fatal(err)
		}
		g, w := outcomeOf(got.Results[0]), outcomeOf(want.Results[0])
		g.first, w.first = "", "" // requests of one moment may change places
		g.firstKey, w.firstKey = "", ""
		if g != w {
			t.Errorf("%s: %+v, want %+v", name, g, w)
		}
	}
}
