package plan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/cmd/internal/planner/plan"
)

var update = flag.Bool("update", false, "write the pages of testdata anew")

const shipped = "../../../stint/testdata/access.log.gz"

func shippedReport(t *testing.T) *plan.Report {
	t.Helper()
	r, err := plan.Run(context.Background(), plan.Options{
		Files: []string{shipped}, Limits: []string{"30/m", "2/s burst 20"}, Compare: true,
		Choose: &plan.Target{Share: 0.01}, Margin: 0.2,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Log.Files[0].Name = "access.log.gz"
	return r
}

// The page is the one that was looked at last; go test -update writes it.
func TestPage(t *testing.T) {
	const golden = "testdata/report.html"
	var page bytes.Buffer
	if err := shippedReport(t).HTML(&page); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, page.Bytes()) {
		t.Errorf("%s is not the page that is written now: go test ./internal/planner/plan -run TestPage -update", golden)
	}
}

// The page loads nothing, forbids itself to, and nothing that a client sent
// becomes a part of it.
func TestPageIsSafe(t *testing.T) {
	hostile := []string{`</script><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `&lt;b&gt;`, "a\x00\u2028b", "{{.}}"}
	var log strings.Builder
	for i, key := range hostile {
		for j := range 5 {
			line, err := json.Marshal(map[string]any{"time": 1709640000 + i + j, "ip": key})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&log, "%s\n", line)
		}
	}
	var page bytes.Buffer
	r := planText(t, []byte(log.String()), plan.Options{Limits: []string{"1/m"}, Compare: true, Choose: &plan.Target{}, IgnoreKeys: hostile[4:]})
	if err := r.HTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, bad := range []string{"<img", "<script>alert", "http://", "https://", "@import", "url(", "onerror=alert(1)>"} {
		if strings.Contains(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), bad) {
			t.Errorf("%q is in the page", bad)
		}
	}
	if m := regexp.MustCompile(`<[a-z][^>]* (src|href|on[a-z]+)=`).FindString(text); m != "" {
		t.Errorf("%q is in the page", m)
	}
	if n := strings.Count(text, "<script"); n != 2 {
		t.Errorf("%d scripts, want the page's own and its data", n)
	}
	policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)
	if policy == nil || !strings.Contains(policy[1], "default-src &#39;none&#39;") || strings.Contains(policy[1], "unsafe") {
		t.Errorf("policy %q", policy)
	}
}

// The fixed window lets twice the count pass around an edge; that is found.
func TestCompareFindsDoubleBurst(t *testing.T) {
	var rows []string
	for i := range 10 {
		rows = append(rows, fmt.Sprintf("2024-01-01T00:00:59.%d00Z,a,/,u", i))
	}
	for i := range 10 {
		rows = append(rows, fmt.Sprintf("2024-01-01T00:01:00.%d00Z,a,/,u", i))
	}
	r := planText(t, csv(rows...), plan.Options{Limits: []string{"10/m"}, Compare: true})
	most := make(map[string]int64)
	for _, row := range r.Compared[0].Rows {
		most[row.Kind] = row.Most
	}
	want := map[string]int64{
		"sliding_log": 10, "sliding_buckets": 10, "sliding_counter": 10, "fixed_window": 20,
		"gcra": 10, "token_bucket_interval": 20, "leaky_queue": 10,
	}
	for kind, n := range want {
		if most[kind] != n {
			t.Errorf("%s let %d pass in a minute, want %d", kind, most[kind], n)
		}
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "The fixed window let 20 pass in one period") {
		t.Errorf("the text says nothing of it:\n%s", &text)
	}
}

// The errors of the estimates are those that counting by the definitions gives.
func TestCompareErrors(t *testing.T) {
	for name, text := range logs(t) {
		all := requests(t, text)
		for i := range all {
			all[i].cost = 1
		}
		r := planText(t, text, plan.Options{Limits: []string{"20/m"}, Compare: true, Brief: true})
		for _, row := range r.Compared[0].Rows {
			j, ok := judges["20/m "+row.Kind]
			if !ok {
				continue
			}
			var differ, above, below int64
			own, log := make(map[string][]request), make(map[string][]request)
			exact := judges["20/m sliding_log"]
			for _, r := range all {
				passes, should := j(own[r.key], r), exact(log[r.key], r)
				if passes != should {
					differ++
				}
				switch room := exact(own[r.key], r); {
				case passes && !room:
					above++
				case !passes && room:
					below++
				}
				if passes {
					own[r.key] = append(own[r.key], r)
				}
				if should {
					log[r.key] = append(log[r.key], r)
				}
			}
			if row.Differ != differ || row.Above != above || row.Below != below {
				t.Errorf("%s, %s: %d unlike the log, %d above, %d below; want %d, %d, %d", name, row.Kind, row.Differ, row.Above, row.Below, differ, above, below)
			}
		}
	}
}

// Rules decide as the same limits do alone, each for the requests it matches.
func TestRules(t *testing.T) {
	rules, err := policy.Parse([]byte(`{"rules": [
		{"name": "api", "match": {"path": "/api/**"}, "key": ["ip"], "limits": ["20/m"]},
		{"name": "all", "key": ["ip"], "limits": ["20/m burst 30", "100/h sliding_log"], "shadow": true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	text := unzip(t, shipped)
	got := planText(t, text, plan.Options{Rules: rules})
	api := planText(t, text, plan.Options{Limits: []string{"20/m"}, Match: []string{"path=/api/**"}, Brief: true}).Results[0]
	if len(got.Results) != 3 || got.Results[0].Rule != "api" {
		t.Fatalf("%+v", got.Results)
	}
	g := got.Results[0]
	if g.Requests != api.Requests || g.Denied != api.Denied || g.Clients != api.Clients || g.ClientsDenied != api.ClientsDenied || g.Denied == 0 {
		t.Errorf("by rule %+v, alone %+v", outcomeOf(g), outcomeOf(api))
	}
	if got.Ruled.Denied != api.Denied || got.Ruled.ClientsDenied != api.ClientsDenied {
		t.Errorf("together %+v: what is in shadow denies nobody", got.Ruled)
	}
	if r := got.Results[2]; r.Denied == 0 || r.Requests != got.Log.Requests {
		t.Errorf("in shadow %+v", outcomeOf(r))
	}
}

// A longest lock-out is from a denial to the last before a request passed.
func TestLockout(t *testing.T) {
	r := planText(t, csv(
		"2024-01-01T00:00:00Z,a,/,u", "2024-01-01T00:00:10Z,a,/,u", "2024-01-01T00:00:30Z,a,/,u", "2024-01-01T00:02:00Z,a,/,u",
		"2024-01-01T00:02:10Z,a,/,u", "2024-01-01T00:02:50Z,a,/,u",
	), plan.Options{Limits: []string{"1/m"}})
	if got := r.Results[0]; got.LongestLockout.String() != "40s" || got.LockedOut != "a" || got.Denied != 4 {
		t.Errorf("%+v", got)
	}
}
