package plan_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/planner/plan"
)

// A shaped log is of clients that send as much as a bucket of a given rate and burst
// lets pass, whenever they come, and of some that send little.
type shaped struct {
	rate, burst int
	minutes     int
	abuse       bool // one client that sends a hundred a second for a while
}

func (s shaped) log() []byte {
	type line struct {
		at  time.Duration
		key string
	}
	var lines []line
	total := time.Duration(s.minutes) * time.Minute
	for c := range 20 {
		key := fmt.Sprintf("192.0.2.%d", c)
		start := time.Duration(c) * 700 * time.Millisecond
		for start < total-3*time.Minute {
			for range s.burst {
				lines = append(lines, line{start, key})
			}
			for i := range 120 * s.rate {
				lines = append(lines, line{start + time.Duration(i+1)*time.Second/time.Duration(s.rate), key})
			}
			start += 10 * time.Minute
		}
	}
	for c := range 180 {
		for i := range 3 {
			lines = append(lines, line{time.Duration(c+200*i)*total/620 + 13*time.Millisecond, fmt.Sprintf("198.51.100.%d", c)})
		}
	}
	for i := 0; s.abuse && i < 6000; i++ {
		lines = append(lines, line{total/3 + time.Duration(i)*10*time.Millisecond, "203.0.113.1"})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return int(min(max(a.at-b.at, -1), 1)) })
	var b strings.Builder
	b.WriteString("time,ip\n")
	start := time.Date(2024, 3, 30, 22, 0, 0, 0, time.UTC) // over the change to summer time
	for _, l := range lines {
		fmt.Fprintf(&b, "%s,%s\n", start.Add(l.at).Format(time.RFC3339Nano), l.key)
	}
	return []byte(b.String())
}

// atOnce is a log of a client that sends n requests at once, and of others that
// send one each.
func atOnce(n, others int) []byte {
	var b strings.Builder
	b.WriteString("time,ip\n")
	for range n {
		b.WriteString("1000000000,192.0.2.1\n")
	}
	for i := range others {
		fmt.Fprintf(&b, "%d,client-%d\n", 1_000_000_000+i, i)
	}
	return []byte(b.String())
}

// leftOut says that the i-th of several cases is left to the run without the race
// detector.
func leftOut(i int) bool { return race.On && i%4 != 0 }

// unraced leaves a test to the run without the race detector.
func unraced(t *testing.T) {
	if race.On {
		t.Skip("it takes long with the race detector: make test runs it without")
	}
}

// Of traffic that was shaped by a limit, that limit is found, with and without
// a client that abuses, and it holds on the half that it was not chosen from.
func TestChoosesKnown(t *testing.T) {
	for i, test := range []struct {
		shaped
		target  float64
		options plan.Options
		want    string
		denied  int64
	}{
		{shaped{5, 20, 60, false}, 0, plan.Options{}, "5/1s burst 20", 0},
		{shaped{2, 100, 60, false}, 0, plan.Options{}, "2/1s burst 100", 0},
		{shaped{10, 1, 30, false}, 0, plan.Options{}, "10/1s burst 1", 0},
		{shaped{5, 20, 60, true}, 0.005, plan.Options{}, "5/1s burst 20", 1},
		{shaped{5, 20, 60, true}, 0, plan.Options{IgnoreKeys: []string{"203.0.113.1"}}, "5/1s burst 20", 1},
		{shaped{5, 20, 60, true}, 0, plan.Options{IgnoreKeys: []string{"203.0.113.0/24"}}, "5/1s burst 20", 1},
		{shaped{5, 20, 60, true}, 0, plan.Options{Exempt: []string{"203.0.113.1"}}, "5/1s burst 20", 0},
		{shaped{5, 20, 60, true}, 0, plan.Options{Match: []string{"ip=192.0.2.0/24"}}, "5/1s burst 20", 0},
	} {
		if leftOut(i) {
			continue
		}
		o := test.options
		o.Choose = &plan.Target{Share: test.target}
		c := planText(t, test.log(), o).Choice
		if c.Tightest != test.want || c.Limit != test.want || c.Would.ClientsDenied != test.denied {
			t.Errorf("%+v, %v of the clients: %s, which denies %d clients; want %s and %d", test.shaped, test.target, c.Tightest, c.Would.ClientsDenied, test.want, test.denied)
		}
	}
}

// Every candidate keeps to the target, and with the next lower round burst it
// would not: by the replay of each.
func TestCandidatesAreTight(t *testing.T) {
	round := []int64{1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300, 400, 500, 600, 800, 1000, 1200, 1500, 2000, 2500, 3000, 4000, 5000, 6000}
	log, once := shaped{5, 20, 40, true}.log(), atOnce(100, 900)
	for i, test := range []struct {
		log []byte
		plan.Target
	}{
		{log, plan.Target{Share: 0.01}}, {log, plan.Target{Share: 0.1}},
		{log, plan.Target{Requests: true}}, {log, plan.Target{Share: 0.05, Requests: true}},
		{once, plan.Target{Share: 0.045, Requests: true}}, {once, plan.Target{Share: 0.093, Requests: true}},
	} {
		if leftOut(i) {
			continue
		}
		log, target := test.log, test.Target
		candidates := planText(t, log, plan.Options{Choose: &target}).Choice.Candidates
		o := plan.Options{Brief: true}
		for _, c := range candidates {
			i, ok := slices.BinarySearch(round, c.Burst)
			if !ok {
				t.Fatalf("%v: burst %d is not round", target, c.Burst)
			}
			o.Limits = append(o.Limits, fmt.Sprintf("%s burst %d", c.Rate, c.Burst), fmt.Sprintf("%s burst %d", c.Rate, round[max(i-1, 0)]))
		}
		results := planText(t, log, o).Results
		for i, c := range candidates {
			keeps := func(r plan.Result) bool {
				if target.Requests {
					return float64(r.Denied) <= target.Share*float64(r.Requests)
				}
				return float64(r.ClientsDenied) <= target.Share*float64(r.Clients)
			}
			if !keeps(results[2*i]) {
				t.Errorf("%v: %s denies %d requests of %d clients", target, results[2*i].Limit, results[2*i].Denied, results[2*i].ClientsDenied)
			}
			if c.Burst > 1 && keeps(results[2*i+1]) {
				t.Errorf("%v: %s would do, tighter than %d", target, results[2*i+1].Limit, c.Burst)
			}
		}
	}
}

// With a margin, both numbers grow by it at least, the rate by little more.
func TestMargin(t *testing.T) {
	log := shaped{1, 7, 30, false}.log()
	for margin, want := range map[float64]string{0: "1/1s burst 8", 0.2: "72/1m burst 10", 0.5: "90/1m burst 12", 1: "2/1s burst 20"} {
		if c := planText(t, log, plan.Options{Choose: &plan.Target{}, Margin: margin}).Choice; c.Limit != want {
			t.Errorf("margin %v: %s, want %s", margin, c.Limit, want)
		}
	}
}

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]plan.Target{
		"0.1%": {Share: 0.001}, "0%": {}, "100% of clients": {Share: 1}, " 0.5 % of requests": {Share: 0.005, Requests: true},
	} {
		if got, err := plan.ParseTarget(text); err != nil || got != want {
			t.Errorf("%q: %v (%v), want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0.1", "-1%", "101%", "NaN%", "x%", "1% of cats", "1%%"} {
		if got, err := plan.ParseTarget(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
}

// The rule to paste says what the choice was made from.
func TestRuleAndCommand(t *testing.T) {
	log := strings.ReplaceAll(string(shaped{1, 5, 30, false}.log()), "time,ip", "time,header.x-api-key")
	o := plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(log), Key: []string{"header.x-api-key"}, Match: []string{"header.x-api-key=1*", "header.x-api-key=2*"}, Choose: &plan.Target{}}
	r, err := plan.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := "rules:\n  # stint plan chose this from 8,040 requests of 200 clients, to deny at most 0%\n  #   of clients.\n  # On that log it denies nothing.\n  - name: by-header-x-api-key\n    match:\n      header.x-api-key: ['1*', '2*']\n    key: [header.x-api-key]\n    limits: ['1/1s burst 5']\n    shadow: true # decides and counts, denies nobody yet\n"
	if r.Choice.Rule != want {
		t.Errorf("%s\nwant\n%s", r.Choice.Rule, want)
	}
	if want := "stint plan --limit '1/1s burst 5' --key header.x-api-key --match 'header.x-api-key=1*' --match 'header.x-api-key=2*' -"; r.Choice.Check != want {
		t.Errorf("%s\nwant\n%s", r.Choice.Check, want)
	}
}

// Clients that are left out may come at another time than all the others, an hour
// or ten years before or after, and what is denied to them counts.
func TestLeftOutElsewhere(t *testing.T) {
	for _, apart := range []time.Duration{time.Hour, 24 * time.Hour, 87600 * time.Hour} {
		for _, sign := range []time.Duration{-1, 1} {
			var flood strings.Builder
			at := time.Date(2024, 3, 5, 12, 0, 0, 0, time.UTC).Add(sign * apart)
			for i := range 1500 {
				flood.WriteString(combined(at.Add(time.Duration(i/5)*time.Second), "203.0.113.9") + "\n")
			}
			log := flood.String() + string(plain(2000, 50, combined))
			if sign > 0 {
				log = string(plain(2000, 50, combined)) + flood.String()
			}
			r := planText(t, []byte(log), plan.Options{Choose: &plan.Target{Share: 0.01}, IgnoreKeys: []string{"203.0.113.9"}})
			if r.Choice == nil || len(r.Choice.Left) != 1 || r.Choice.Left[0].Denied < 1000 || r.Choice.Would.Denied < r.Choice.Left[0].Denied {
				t.Fatalf("%v: %+v", sign*apart, r.Choice)
			}
			if err := r.HTML(io.Discard); err != nil {
				t.Errorf("%v: %v", sign*apart, err)
			}
		}
	}
}

// An exempt client that sent nothing may be misspelled: no rule lets it through.
func TestExemptUnmet(t *testing.T) {
	log := shaped{1, 5, 30, true}.log()
	r := planText(t, log, plan.Options{Choose: &plan.Target{}, Exempt: []string{"203.0.113.1", "203.0.113.99"}})
	if want := "    overrides:\n      - {when: {ip: 203.0.113.1}, unlimited: true}\n    shadow"; !strings.Contains(strings.ReplaceAll(r.Choice.Rule, "'", ""), want) {
		t.Errorf("%s\nwant\n%s", r.Choice.Rule, want)
	}
	found := slices.ContainsFunc(r.Findings, func(f plan.Finding) bool { return f.What == "not_found" && strings.Contains(f.Text, "203.0.113.99") })
	if !found {
		t.Errorf("%+v: nothing says that one is not found", r.Findings)
	}
}

// Where a client stands clearly apart, the default stands at the cliff, and denies it
// alone. Without a clear cliff, or with a share that was asked for, it is the share
// that counts.
func TestStandsAtCliff(t *testing.T) {
	asked := plan.Target{Share: 0.001}
	slope := func(top int) []byte { // 100 clients, the first of which sends more at once
		var b strings.Builder
		b.WriteString("time,ip,n\n")
		for c := range 100 {
			n := 20
			if c == 0 {
				n = top
			}
			for k := range n {
				fmt.Fprintf(&b, "%d,192.0.2.%d,%d\n", 1_000_000_000+20*c, c, k)
			}
		}
		return []byte(b.String())
	}
	for _, test := range []struct {
		name    string
		log     []byte
		target  plan.Target
		words   string
		denied  int64
		advised bool
	}{
		{"abuse", shaped{5, 20, 60, true}.log(), plan.DefaultTarget, "the 1 client that stands apart", 1, false},
		{"abuse, with a share", shaped{5, 20, 60, true}.log(), asked, "0.1% of clients", 0, true},
		{"no abuse", shaped{5, 20, 60, false}.log(), plan.DefaultTarget, "0.1% of clients", 0, false},
		{"a client of four times as much", slope(80), plan.DefaultTarget, "0.1% of clients", 0, true},
		{"a client of ten times as much", slope(200), plan.DefaultTarget, "the 1 client that stands apart", 1, false},
	} {
		c := planText(t, test.log, plan.Options{Choose: &test.target, Margin: 0.2, Brief: true}).Choice
		if c.Target != test.words || c.Would.ClientsDenied != test.denied || (c.Cliff.Advice != "") != test.advised {
			t.Errorf("%s: %s, to deny at most %s: %d clients; advice %q", test.name, c.Limit, c.Target, c.Would.ClientsDenied, c.Cliff.Advice)
		}
	}
}
