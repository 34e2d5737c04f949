package lab_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/stint-dev/stint/planner/lab"
	"github.com/stint-dev/stint/planner/testkit/browser"
)

// TestFlights holds verdicts, and how many are in flight after each, to what is counted
// by hand. Times are in seconds.
func TestFlights(t *testing.T) {
	for _, c := range []struct {
		limit, lasts string
		times        []float64
		costs        []int64
		verdicts     string
		remaining    []int64
		retries      []int64 // in seconds
	}{
		{"2 in flight", "1s", []float64{0, 0, 0.5, 0.999999999, 1, 1, 1}, nil, "ppddppd", []int64{1, 0, 0, 0, 1, 0, 0}, []int64{0, 0, 1, 1, 0, 0, 1}},
		{"1 in flight", "10s", []float64{0, 5, 10, 15, 19, 20}, nil, "pdpddp", []int64{0, 0, 0, 0, 0, 0}, []int64{0, 1, 0, 1, 1, 0}},
		{"3 in flight", "2s", []float64{0, 1, 1, 1, 1, 2, 2.5}, []int64{2, 2, 1, 1, 0, 2, 4}, "pdpdppd", []int64{1, 1, 0, 0, 0, 0, 0}, []int64{0, 1, 0, 1, 0, 0, -1}},
		{"9007199254740992 in flight", "876000h", []float64{0, 0, 3_153_599_999}, []int64{1<<63 - 1, 1 << 53, 1}, "dpd", []int64{1 << 53, 0, 0}, []int64{-1, 0, 1}},
		{"5 in flight", "1ns", []float64{0, 0, 1e-9, 1e-9}, []int64{5, 1, 5, 1}, "pdpd", []int64{0, 0, 0, 0}, []int64{0, 1, 0, 1}},
	} {
		a := lab.Arrivals{Shape: "list", Costs: c.costs}
		for _, at := range c.times {
			a.Times = append(a.Times, int64(at*1e9))
		}
		row := simulate(t, &lab.Request{Limits: []string{"10/s", c.limit}, Arrivals: a, Lasts: c.lasts}).Rows[1]
		var retries []int64
		for _, ns := range row.Each.RetryAfter {
			if ns > 0 {
				ns /= 1e9
			}
			retries = append(retries, ns)
		}
		if row.Each.Verdicts != c.verdicts || !slices.Equal(row.Each.Remaining, c.remaining) || !slices.Equal(retries, c.retries) {
			t.Errorf("%s of %s at %v: %s, remaining %v, retries %v", c.limit, c.lasts, c.times, row.Each.Verdicts, row.Each.Remaining, retries)
		}
	}
}

// A flown is a request that passed, as a model has it.
type flown struct {
	request        int // from 0
	process        int // that let it in
	key            string
	at, end, units int64
}

// inFlight counts the units of a key that run at a moment, as docs/SEMANTICS.md defines it.
func inFlight(all []flown, key string, at int64) (units int64) {
	for _, f := range all {
		if f.key == key && f.at <= at && at < f.end {
			units += f.units
		}
	}
	return units
}

// TestFlightsModel compares random traffic of two clients with a model: each request,
// each column, and whom the explanation of one names.
func TestFlightsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 100 {
		arrivals, lasts, count := traffic(random), 1+random.Int64N(int64(3*time.Second)), 1+random.Int64N(9)
		request := &lab.Request{
			Limits: []string{fmt.Sprintf("%d in flight", count)}, Arrivals: arrivals, Lasts: time.Duration(lasts).String(), Columns: 50,
			Why: &lab.Place{Request: random.IntN(len(arrivals.Times))},
		}
		a := simulate(t, request)
		row, all, most := a.Rows[0], []flown(nil), int64(0)
		for j, at := range arrivals.Times {
			key, cost := arrivals.Keys[j], arrivals.Costs[j]
			if j == request.Why.Request && cost > 0 && cost <= count {
				checkFlightsWhy(t, a.Why, all)
			}
			before := inFlight(all, key, at)
			if before+cost <= count {
				all = append(all, flown{j, 0, key, at, at + lasts, cost})
			}
			after := inFlight(all, key, at)
			most = max(most, after)
			passes := before+cost <= count
			if (row.Each.Verdicts[j] == 'p') != passes || row.Each.Before[j] != before || row.Each.Remaining[j] != count-after {
				t.Fatalf("%+v, request %d: %c, %d in flight before, %d remaining; want %v, %d, %d", request, j, row.Each.Verdicts[j], row.Each.Before[j], row.Each.Remaining[j], passes, before, count-after)
			}
		}
		if row.Most != most || row.MostIn != lasts || row.Promised != count {
			t.Fatalf("%+v: at most %d in %d of %d, want %d", request, row.Most, row.MostIn, row.Promised, most)
		}
		checkColumns(t, a, row, arrivals)
		for i := range a.Columns {
			begin, end := (i*a.Horizon+a.Columns-1)/a.Columns, ((i+1)*a.Horizon+a.Columns-1)/a.Columns
			last := inFlight(all, arrivals.Keys[0], end-1)
			low, high := last, max(last, inFlight(all, arrivals.Keys[0], begin))
			for _, f := range all { // it rises when one begins, and falls when one ends
				if begin <= f.at && f.at < end {
					high = max(high, inFlight(all, arrivals.Keys[0], f.at))
				}
			}
			for _, f := range append(slices.Clone(all), flown{end: begin}) {
				if begin <= f.end && f.end < end {
					low = min(low, inFlight(all, arrivals.Keys[0], f.end)-begun(all, arrivals.Keys[0], f.end))
				}
			}
			c := row.Columns
			if c.Low[i] != low || c.High[i] != high || c.Remaining[i] != count-last || c.RetryAfter[i] != map[bool]int64{true: 1e9}[last == count] {
				t.Fatalf("%+v, column %d: from %d to %d, %d remaining, retry after %d; want from %d to %d, and %d", request, i, c.Low[i], c.High[i], c.Remaining[i], c.RetryAfter[i], low, high, count-last)
			}
		}
	}
}

// begun counts the units of a key that begin at a moment.
func begun(all []flown, key string, at int64) (units int64) {
	for _, f := range all {
		if f.key == key && f.at == at {
			units += f.units
		}
	}
	return units
}

// checkFlightsWhy looks for who held the places when a request came, and who ends first.
func checkFlightsWhy(t *testing.T, w *lab.Why, before []flown) {
	t.Helper()
	var want, got []string
	units := int64(0)
	for _, f := range before {
		if f.key == w.Client && f.end > w.At && f.units > 0 {
			want = append(want, fmt.Sprintf("request %d came at %v; ends at %v", f.request+1, time.Duration(f.at), time.Duration(f.end)))
			units += f.units
		}
	}
	for _, c := range w.Counted {
		got = append(got, c.Text)
	}
	words := strings.Join(w.Words, " ")
	if !slices.Equal(got, want) || fact(w, "used") != units || !strings.Contains(words, fmt.Sprintf("%d of %d were in flight", units, fact(w, "count"))) {
		t.Fatalf("%+v: want %v", w, want)
	}
	if len(want) == 0 {
		return
	}
	request, end, _ := strings.Cut(strings.Replace(want[0], "request ", "", 1), " came")
	if _, end, _ = strings.Cut(end, "ends at "); !strings.Contains(words, "The first of them to end is request "+request+", at "+end+".") {
		t.Fatalf("%+v: want request %s, at %s", w, request, end)
	}
}

// TestFlightsShapes plays a client that reacts: its denied request comes again until a
// place is free, after the gap or the second that it is told.
func TestFlightsShapes(t *testing.T) {
	hammer := lab.Arrivals{Shape: "hammer", Rate: "10/s", Gap: "25ms"}
	row := simulate(t, &lab.Request{Limits: []string{"1 in flight"}, Horizon: "3500ms", Lasts: "1250ms", Arrivals: hammer}).Rows[0]
	// The first is due at 0s, the second at 100 ms, and is tried until the first ends: 46
	// times in vain. The third is tried 50 times, and the fourth 40 until the horizon.
	if got := fmt.Sprint(row.Passed, row.Denied, row.Each.At[:3]); got != "3 136 [0 100000000 125000000]" {
		t.Errorf("hammering: %s", got)
	}
	polite := lab.Arrivals{Shape: "polite", Rate: "10/s"}
	row = simulate(t, &lab.Request{Limits: []string{"1 in flight"}, Horizon: "3500ms", Lasts: "1250ms", Arrivals: polite}).Rows[0]
	if got := fmt.Sprint(row.Each.Verdicts, " ", row.Each.At); got != "pddpdd [0 100000000 1100000000 2100000000 2100000000 3100000000]" {
		t.Errorf("polite: %s", got)
	}
}

// TestFlightsErrors asks for limits in flight in ways that cannot be played.
func TestFlightsErrors(t *testing.T) {
	missing := "lasts: missing: limits[1] is in flight: want how long each request lasts, such as 1.5s"
	for _, c := range []struct{ lasts, want string }{
		{"", missing},
		{"0s", missing},
		{"soon", `lasts: "soon" is no duration: want one such as 1.5s`},
		{"-1s", "lasts: -1s, want from 0s to 876000h0m0s"},
	} {
		_, err := lab.Simulate(t.Context(), &lab.Request{Limits: []string{"1/s", "2 in flight"}, Arrivals: phases("1@once"), Lasts: c.lasts})
		if err == nil || err.Error() != c.want {
			t.Errorf("%q: %v; want %s", c.lasts, err, c.want)
		}
	}
}

// TestFlightsAlone: how long requests last changes nothing for limits over time.
func TestFlightsAlone(t *testing.T) {
	says := func(lasts string) string {
		a := simulate(t, &lab.Request{Limits: everyKind, Arrivals: phases("20@once +2s 30@20/s"), Lasts: lasts})
		return fmt.Sprintf("%+v", *a.Rows[0].Each)
	}
	if says("") != says("10s") {
		t.Error("they differ")
	}
}

// flights is a limit in flight beside one over time.
const flights = "kinds=gcra&own=4+in+flight&shape=burst&size=6&every=2s&lasts=1s"

// pageShowsFlights has requests last longer, and asks who holds the places.
func pageShowsFlights(p *tab) {
	p.Until("document.querySelectorAll('.row').length === 2")
	p.contains("the row", p.text(".row:nth-child(2)"), "4 in flight", "12 passed", "6 denied", "at most 4 in any 1s")
	if label := browser.Eval[string](p.Tab, "document.getElementById('lasts').labels[0].textContent + '|' + document.getElementById('lasts-range').getAttribute('aria-label')"); label != "A request lasts (limits in flight)|A request lasts (limits in flight)" {
		p.Errorf("the input is called %q", label)
	}
	p.JS("document.getElementById('lasts-range').focus()")
	p.Press(kb.ArrowRight)
	p.Until("document.getElementById('lasts').value === '2s' && document.querySelector('.row:nth-child(2) .totals').innerText.includes('in any 2s') && location.hash.includes('lasts=2s')")
	p.Set("#lasts", "4500ms")
	p.Until("document.querySelector('.row:nth-child(2) .totals').innerText.startsWith('4 passed') && location.hash.includes('lasts=4.5s')")
	p.JS("document.querySelector('.row:nth-child(2) .plot').focus()")
	p.Press("n")
	p.Press(kb.Enter)
	p.Until("document.querySelector('.row:nth-child(2) .why') !== null")
	p.contains("why", p.text(".row:nth-child(2) .why"), "4 of 4 were in flight", "The first of them to end is request 1, at 4.5s", "told to come again in 1s")
	p.Set("#lasts", "soon")
	p.Until("document.getElementById('lasts').getAttribute('aria-invalid') === 'true'")
	p.JS("location.hash = 'kinds=&own=1+in+flight&shape=burst&size=6&every=2s&lasts=100ms'")
	p.Until("document.querySelectorAll('.row').length === 1 && document.querySelector('.row .totals').innerText.startsWith('3 passed') && document.getElementById('lasts').value === '100ms'")
	p.Set("#lasts", "900000h")
	p.Until("document.getElementById('wrong') !== null")
	p.contains("beside the field", p.text("#arrivals .wrong"), "lasts: 900000h0m0s, want from 0s to 876000h")
}
