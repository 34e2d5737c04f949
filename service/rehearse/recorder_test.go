package rehearse_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/rehearse"
)

const document = `{"rules": [{"name": "api", "match": {"path": "/api/**", "header.x-plan": "*"}, "key": ["ip"], "cost": {"attribute": "n"}, "limits": ["5/m"]}]}`

func allowed(ok bool) *policy.Result {
	r := new(policy.Result)
	r.Decision.Allowed = ok
	return r
}

// TestKept keeps what rules look at, with the cost, the verdict and the time,
// and nothing else.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := parse(t, document)
		r := rehearse.NewRecorder(rehearse.RecorderOptions{Attributes: []string{"jwt.sub"}})
		begin := time.Now()
		for i := range 1000 {
			attrs := policy.Map{"path": fmt.Sprintf("/api/%d", i), "ip": "192.0.2.1", "header.authorization": "secret", "jwt.sub": ""}
			if i%2 == 0 {
				attrs["n"] = "7"
			}
			r.Decided(rules, attrs, int64(i%3), allowed(i%5 > 0))
			time.Sleep(time.Millisecond)
		}
		recording := r.Recording(time.Now())
		i := 0
		for q := range recording.Requests() {
			path, _ := q.Attribute("path")
			n, hasN := q.Attribute("n")
			sub, hasSub := q.Attribute("jwt.sub")
			_, hasPlan := q.Attribute("header.x-plan")
			_, hasSecret := q.Attribute("header.authorization")
			switch {
			case path != fmt.Sprintf("/api/%d", i) || q.Cost != int64(i%3) || q.Allowed != (i%5 > 0) || q.At != begin.Add(time.Duration(i)*time.Millisecond).UnixNano():
				t.Fatalf("%d: %+v, %s", i, q, path)
			case hasN != (i%2 == 0) || hasN && n != "7" || !hasSub || sub != "" || hasPlan || hasSecret:
				t.Fatalf("%d: %q %v, %q %v, %v, %v", i, n, hasN, sub, hasSub, hasPlan, hasSecret)
			}
			i++
		}
		if i != 1000 || recording.Len() != 1000 || !recording.Complete() {
			t.Errorf("%d of %d, complete %v", i, recording.Len(), recording.Complete())
		}
		if missing := recording.Missing(parse(t, `{"rules": [{"name": "a", "match": {"method": "GET", "jwt.sub": "*"}, "key": ["host"], "limits": ["1/s"]}]}`)); !slices.Equal(missing, []string{"host", "method"}) {
			t.Errorf("missing %v", missing)
		}
	})
}

// TestBounds fills each bound in turn.
func TestBounds(t *testing.T) {
	rules := parse(t, document)
	synctest.Test(t, func(t *testing.T) {
		r := rehearse.NewRecorder(rehearse.RecorderOptions{Requests: 10_000, Age: time.Minute})
		for i := range 50_000 {
			r.Decided(rules, policy.Map{"ip": fmt.Sprint(i)}, 1, allowed(true))
		}
		all := r.Recording(time.Now())
		if n := all.Len(); n > 10_000 || n < 5_000 || all.Complete() {
			t.Errorf("%d requests", n)
		}
		time.Sleep(2 * time.Minute)
		if n := r.Recording(time.Now()).Len(); n != 0 {
			t.Errorf("%d requests that are too old", n)
		}
		for range 100 {
			r.Decided(rules, policy.Map{"ip": "new"}, 1, allowed(true))
		}
		n := 0
		for q := range r.Recording(time.Now()).Requests() {
			if ip, _ := q.Attribute("ip"); ip != "new" {
				t.Fatal(ip)
			}
			n++
		}
		if n != 100 {
			t.Errorf("%d requests after a pause", n)
		}
	})
}

// TestFlood sends hostile values from many goroutines while others read: memory
// stays within the bound, and values that begin alike stay apart.
func TestFlood(t *testing.T) {
	const bound = 4 << 20
	rules := parse(t, document)
	r := rehearse.NewRecorder(rehearse.RecorderOptions{Bytes: bound})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	long := strings.Repeat("\x00\xff%00", 2000)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 4000 {
				tail := fmt.Sprint(g, "-", i)
				r.Decided(rules, policy.Map{"path": long + tail, "ip": long, "header.x-plan": tail + long, "n": strings.Repeat("9", i)}, -1<<63, allowed(false))
				if i%1000 == 0 {
					for q := range r.Recording(time.Now()).Requests() {
						if v, _ := q.Attribute("path"); len(v) > 256 {
							t.Error(len(v))
							return
						}
					}
				}
			}
		})
	}
	all.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > bound+bound/2 {
		t.Errorf("%d bytes for a bound of %d", grown, bound)
	}
	seen, n := make(map[string]bool), 0
	for q := range r.Recording(time.Now()).Requests() {
		v, _ := q.Attribute("path")
		seen[strings.Clone(v)] = true
		n++
	}
	if n < 1000 || len(seen) != n {
		t.Errorf("%d requests, %d paths", n, len(seen))
	}
	const later = 1000
	for i := range later {
		r.Decided(rules, policy.Map{"path": fmt.Sprintf("/api/later/%d", i), "ip": "192.0.2.7"}, 1, allowed(true))
	}
	kept := 0
	for q := range r.Recording(time.Now()).Requests() {
		if v, _ := q.Attribute("path"); strings.HasPrefix(v, "/api/later/") && q.Allowed && q.Cost == 1 {
			kept++
		}
	}
	if kept != later {
		t.Errorf("after the flood, %d of %d requests are kept", kept, later)
	}
}

// TestMany has rules that look at more attributes than are kept.
func TestMany(t *testing.T) {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, `,{"name": "r%d", "match": {"header.h%d": "x"}, "limits": ["1/s"], "key": []}`, i, i)
	}
	rules := parse(t, `{"rules": [`+b.String()[1:]+`]}`)
	r := rehearse.NewRecorder(rehearse.RecorderOptions{})
	r.Decided(rules, policy.Map{}, 1, allowed(true))
	if missing := r.Recording(time.Now()).Missing(rules); len(missing) != 68 {
		t.Errorf("%d attributes are not kept", len(missing))
	}
}

// TestBuilder puts requests in order, and knows what none of them has.
func TestBuilder(t *testing.T) {
	b := rehearse.NewBuilder([]string{"ip", "path"})
	for _, at := range []int64{5, 3, 9, 3} {
		if err := b.Add(at, 1, true, [][]byte{[]byte(fmt.Sprint(at)), nil}); err != nil {
			t.Fatal(err)
		}
	}
	all := b.Recording()
	var got []string
	for q := range all.Requests() {
		ip, _ := q.Attribute("ip")
		got = append(got, fmt.Sprint(q.At, "=", ip))
	}
	if strings.Join(got, " ") != "3=3 3=3 5=5 9=9" {
		t.Error(got)
	}
	sent := parse(t, `{"rules": [{"name": "a", "key": [], "limits": "9/m", "cost": {"attribute": "body./n", "sent": 100}}]}`)
	p, _ := live(t, two, rehearse.RecorderOptions{})
	report, err := rehearse.Run(t.Context(), rehearse.Options{Live: p, After: sent, Recording: all, Fresh: true})
	if err != nil || len(report.Unsure) != 2 || !strings.Contains(report.Unsure[1], "what requests send") {
		t.Errorf("of a log: %+v, %v", report, err)
	}
	if missing := all.Missing(parse(t, document)); !slices.Equal(missing, []string{"header.x-plan", "n", "path"}) {
		t.Error(missing)
	}
	if n := rehearse.NewBuilder(nil).Recording().Len(); n != 0 {
		t.Error(n)
	}
}
