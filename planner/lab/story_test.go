package lab_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-dev/stint/planner/lab"
)

func TestStory(t *testing.T) {
	const edge = "+1900ms 10@once +100ms 10@once +1s 40@20/s +1s"
	for _, c := range []struct {
		limits   []string
		arrivals lab.Arrivals
		want     string
	}{
		{[]string{"10/s", "10/s fixed_window", "10/s sliding_log"}, phases(edge), "The same 60 requests: the fixed window let 20 through in 1s where 10 were promised; at most 19 by the bucket, 10 by the sliding log."},
		{[]string{"10/s fixed_window"}, phases(edge), "60 requests: the fixed window let 20 through in 1s where 10 were promised."},
		{[]string{"10/s"}, phases(edge), "60 requests: the bucket denies 20, and lets at most 19 through in any 1s."},
		{[]string{"10/s", "5/s"}, phases(edge), "The same 60 requests: each limit keeps what it promises; 5/1s denies the most, 41, and 10/1s the fewest, 20."},
		{[]string{"10/s", "1000/m sliding_log"}, phases("5@once"), "The same 5 requests: none is denied. A lower limit, or more requests, would show more."},
		{[]string{"1/s sliding_log", "1/s sliding_buckets"}, phases("2@once"), "The same 2 requests: each limit keeps what it promises and denies 1."},
		{[]string{"1/s fixed_window", "3/2s fixed_window", "3/m sliding_log"}, phases("+1900ms 5@once +100ms 5@once +1s"), "The same 10 requests: 1/1s fixed_window let 2 through in 1s where 1 was promised, 3/2s fixed_window let 6 in 2s where 3 were promised; at most 3 in 1m0s by 3/1m sliding_log."},
		{[]string{"10 in flight"}, phases("25@once"), "25 requests: 10 in flight denies 15, and lets at most 10 through in any 2s."},
		{[]string{"5 in flight", "10/s fixed_window", "7 in flight"}, phases(edge), "The same 60 requests: the fixed window let 20 through in 1s where 10 were promised; at most 5 in 2s by 5 in flight, 7 in 2s by 7 in flight."},
		{[]string{"2/s fixed_window"}, lab.Arrivals{Shape: "list", Times: []int64{999_999_999, 1_000_000_000}, Costs: []int64{2, 1}}, "2 requests: the fixed window let 3 units through in 1s where 2 were promised."},
	} {
		if got := simulate(t, &lab.Request{Limits: c.limits, Arrivals: c.arrivals, Lasts: "2s"}).Says; got != c.want {
			t.Errorf("%v:\ngot  %s\nwant %s", c.limits, got, c.want)
		}
	}
}

// TestStoryTrue holds the sentence to the answer, whatever is asked: a limit is
// said to have let too much through only if the requests themselves show it.
func TestStoryTrue(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		arrivals := traffic(r)
		var limits []string
		for _, i := range r.Perm(len(everyKind))[:1+r.IntN(4)] {
			limits = append(limits, everyKind[i])
		}
		a := simulate(t, &lab.Request{Limits: limits, Arrivals: arrivals})
		broken := false
		for _, row := range a.Rows {
			most := worst(row, arrivals)
			if most != row.Most {
				t.Fatalf("%s: at most %d, but the requests show %d", row.Limit, row.Most, most)
			}
			l := limit(t, row.Limit)
			promised := l.Count()
			if kind := l.Algorithm().String(); kind == "gcra" || kind == "token_bucket_interval" {
				promised += l.Burst()
			}
			if promised != row.Promised {
				t.Fatalf("%s promises %d, not %d", row.Limit, promised, row.Promised)
			}
			broken = broken || most > promised
		}
		if broken != strings.Contains(a.Says, "through in 1s where ") {
			t.Fatalf("%v: %s", limits, a.Says)
		}
	}
}

// worst counts anew, request by request, the most that one key started in a
// period.
func worst(row *lab.Row, arrivals lab.Arrivals) int64 {
	most := int64(0)
	start := func(i int) int64 {
		if row.Each.Delay == nil {
			return arrivals.Times[i]
		}
		return arrivals.Times[i] + row.Each.Delay[i]
	}
	for i := range arrivals.Times {
		sum := int64(0)
		for j := range arrivals.Times {
			if row.Each.Verdicts[j] != 'd' && arrivals.Keys[j] == arrivals.Keys[i] && start(j) <= start(i) && start(j) > start(i)-row.MostIn {
				sum += arrivals.Costs[j]
			}
		}
		most = max(most, sum)
	}
	return most
}

// TestDocsEndpoint sends what docs/LAB.md sends to POST v1/simulate.
func TestDocsEndpoint(t *testing.T) {
	text, err := os.ReadFile("../../docs/LAB.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile(`(?s)v1/simulate -H 'Content-Type: application/json' -d '(.*?)'`).FindAllSubmatch(text, -1)
	if len(examples) == 0 {
		t.Fatal("docs/LAB.md has no example of the endpoint")
	}
	for _, e := range examples {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/v1/simulate", strings.NewReader(string(e[1])))
		r.Header.Set("Content-Type", "application/json")
		lab.Simulator(false, nil).ServeHTTP(w, r)
		if w.Code != 200 {
			t.Errorf("%s\nanswers %d: %s", e[1], w.Code, w.Body)
		}
	}
}

// TestByClient holds the totals of clients to the requests.
func TestByClient(t *testing.T) {
	a := simulate(t, &lab.Request{Limits: []string{"10/s", "10/s burst 5 leaky_queue"}, Horizon: "6s",
		Arrivals: lab.Arrivals{Shape: "several", Clients: 3, Rate: "25/s", Other: "8/s"}})
	for _, row := range a.Rows {
		var want [3]lab.Tally
		for i, letter := range row.Each.Verdicts {
			switch one := &want[a.Who[i]]; letter {
			case 'p':
				one.Passed++
			case 'w':
				one.Delayed++
			default:
				one.Denied++
			}
		}
		if got := fmt.Sprint(row.ByClient); got != fmt.Sprint(want) {
			t.Errorf("%s: %s, want %v", row.Limit, got, want)
		}
	}
	_, err := lab.Simulate(context.Background(), &lab.Request{Limits: []string{"1/s"}, Horizon: "1s", Arrivals: lab.Arrivals{Shape: "several", Clients: 201, Rate: "1/s", Other: "1/s"}})
	if err == nil || err.Error() != "arrivals.clients: 201, want from 2 to 200" {
		t.Error(err)
	}
}
