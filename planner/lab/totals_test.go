package lab_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stint-dev/stint/planner/lab"
	"github.com/stint-dev/stint/planner/trial"
)

// TestMost holds what a limit let through at the most, and what it promises, to the
// requests themselves.
func TestMost(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		arrivals := traffic(r)
		var limits []string
		for _, i := range r.Perm(len(everyKind))[:1+r.IntN(4)] {
			limits = append(limits, everyKind[i])
		}
		a := simulate(t, &lab.Request{Limits: limits, Arrivals: arrivals})
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

// TestByClient holds the totals of clients to the requests.
func TestByClient(t *testing.T) {
	a := simulate(t, &lab.Request{Limits: []string{"10/s", "10/s burst 5 leaky_queue"}, Horizon: "6s",
		Arrivals: lab.Arrivals{Shape: "several", Clients: 3, Rate: "25/s", Other: "8/s"}})
	for _, row := range a.Rows {
		var want [3]trial.Tally
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
