package lab_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/planner/lab"
)

// fact returns a number of an explanation, or -1.
func fact(w *lab.Why, name string) int64 {
	for _, f := range w.Facts {
		if f.Name == name {
			return f.Value
		}
	}
	return -1
}

// TestWhyAgrees explains every request of random traffic under every kind, and
// holds the numbers to the engine's answer: those of the explanation alone must
// give the verdict, what was in use and when the request would pass.
func TestWhyAgrees(t *testing.T) {
	need.Time(t)
	r := rand.New(rand.NewPCG(3, 4))
	limits := append([]string{
		"10/s fixed_window", "10/s fixed_window from first", "7/s fixed_window from first count_denied", "9/s sliding_log count_denied", "10/s sliding_counter relaxed", "10/s sliding_buckets parts 7 count_denied",
		"3/s token_bucket_interval burst 11", "8 per day in Europe/Paris", "5 per 700ms sliding_counter count_denied",
	}, everyKind...)
	denied := make(map[string]int)
	step, enough := 1, 20
	if race.On { // each explanation plays all that came before, on one goroutine
		step, enough = 4, 5
	}
	for range 12 {
		arrivals := traffic(r)
		for _, text := range limits {
			for j := 0; j < len(arrivals.Times); j += step {
				a := simulate(t, &lab.Request{Limits: []string{text}, Arrivals: arrivals, Columns: 1, Why: &lab.Place{Request: j}})
				checkWhy(t, a.Rows[0], a.Why, j)
				if a.Why.Verdict == "denied" && a.Why.RetryAfter > 0 {
					denied[text]++
				}
			}
		}
	}
	for _, l := range limits {
		if denied[l] < enough {
			t.Errorf("%s: %d denials: the traffic proves too little", l, denied[l])
		}
	}
}

func checkWhy(t *testing.T, row *lab.Row, w *lab.Why, j int) {
	t.Helper()
	want := map[byte]string{'p': "passed", 'w': "delayed", 'd': "denied"}[row.Each.Verdicts[j]]
	if w.Verdict != want || w.RetryAfter != row.Each.RetryAfter[j] || len(w.Words) == 0 {
		t.Fatalf("%s, request %d: %+v; the verdict was %s", row.Limit, j, w, want)
	}
	if w.Cost == 0 || w.Cost > row.Capacity {
		return // neither rests on the state
	}
	check := func(what string, got, want int64) {
		if got != want {
			t.Fatalf("%s, request %d: %s is %d, want %d: %+v", row.Limit, j, what, got, want, w)
		}
	}
	passes, before := w.At+w.RetryAfter, row.Each.Before[j]
	used, capacity := fact(w, "used"), row.Capacity
	switch row.Kind {
	case "gcra":
		check("the backlog from the TAT", fact(w, "tat")-w.At, fact(w, "backlog"))
		check("what was there", fact(w, "there"), capacity-before)
		over := fact(w, "backlog") + fact(w, "needs") - fact(w, "room")
		if w.Verdict == "denied" && (over < w.RetryAfter-1 || over > w.RetryAfter+2) || w.Verdict != "denied" && over > 2 { // three numbers rounded up
			t.Fatalf("%s, request %d: %d above the room: %+v", row.Limit, j, over, w)
		}
	case "token_bucket_interval":
		check("what was there", fact(w, "there"), capacity-before)
		if w.Verdict == "denied" {
			check("when it passes", fact(w, "next_filling")+(fact(w, "fillings")-1)*row.MostIn, passes)
		}
	case "leaky_queue":
		check("the free places", fact(w, "free"), capacity-before)
		if w.Verdict == "delayed" {
			check("the delay", fact(w, "line"), w.Delay)
		}
	case "fixed_window":
		check("used", min(used, capacity), before)
		if begin := fact(w, "window_begin"); begin > w.At || fact(w, "window_end") <= w.At {
			t.Fatalf("%s: %d is not in the window: %+v", row.Limit, w.At, w)
		}
		if w.Verdict == "denied" {
			check("the window's end", fact(w, "window_end"), passes)
		}
	case "sliding_log":
		check("used", used, before)
		if w.Verdict == "denied" && !strings.Contains(row.Limit, "count_denied") {
			check("when enough have left", enough(w, used-(capacity-w.Cost)), passes)
		}
	case "sliding_counter":
		// What remains is the largest r with cur + prev·(W − e)/W + r ≤ L.
		left := func(r int64) bool {
			free := (capacity - fact(w, "current") - r) * row.MostIn
			if strings.Contains(row.Limit, "relaxed") {
				return fact(w, "previous")*fact(w, "overlap") < free+row.MostIn
			}
			return fact(w, "previous")*fact(w, "overlap") <= free
		}
		if r := capacity - before; r > 0 && !left(r) || r < capacity && left(r+1) && fact(w, "current")+r+1 <= capacity {
			t.Fatalf("%s, request %d: %d remained: %+v", row.Limit, j, r, w)
		}
	case "sliding_buckets":
		check("used", min(used, capacity), before)
		sum := int64(0)
		for _, c := range w.Counted {
			sum += c.Units
		}
		check("the sum of the parts", sum, used)
	}
}

// enough returns when the oldest of the given number of units that counted have left.
func enough(w *lab.Why, units int64) int64 {
	for _, c := range w.Counted {
		if units -= c.Units; units <= 0 {
			return c.To
		}
	}
	return -1
}

// TestWhyWords shows what people read about one denial of each kind.
func TestWhyWords(t *testing.T) {
	var b strings.Builder
	for _, text := range append([]string{"8 per day in Europe/Paris", "6 in flight"}, everyKind...) {
		a := simulate(t, &lab.Request{Limits: []string{text}, Arrivals: phases("+900ms 6@once +200ms 30@40/s +700ms"), Lasts: "300ms"})
		j := strings.LastIndexByte(a.Rows[0].Each.Verdicts, 'd')
		if j < 0 {
			t.Fatalf("%s denies nothing", text)
		}
		w := simulate(t, &lab.Request{Limits: []string{text}, Arrivals: phases("+900ms 6@once +200ms 30@40/s +700ms"), Lasts: "300ms", Why: &lab.Place{Request: j}}).Why
		b.WriteString("# " + text + "\n" + w.Title + "\n")
		for _, words := range w.Words {
			b.WriteString(words + "\n")
		}
		for _, f := range w.Facts {
			b.WriteString("  " + f.Label + ": " + f.Text + "\n")
		}
		for _, c := range w.Counted {
			b.WriteString("  - " + time.Duration(c.From).String() + " " + c.Text + "\n")
		}
		b.WriteString("\n")
	}
	golden.Equal(t, "testdata/why.txt", b.String())
}
