package plan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/planner/plan"
)

const shipped = "../../cmd/stint/testdata/access.log.gz"

func shippedReport(t *testing.T) *plan.Report {
	t.Helper()
	r, err := plan.Run(context.Background(), plan.Options{
		Files: []string{shipped}, Limits: []string{"30/m", "2/s burst 20"},
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
	var page bytes.Buffer
	if err := shippedReport(t).HTML(&page); err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "testdata/report.html", page.String())
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
	r := planText(t, []byte(log.String()), plan.Options{Limits: []string{"1/m"}, Choose: &plan.Target{}, IgnoreKeys: hostile[4:]})
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
	if n := strings.Count(text, "<script"); n != 1 {
		t.Errorf("%d scripts, want the page's own", n)
	}
	policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)
	if policy == nil || !strings.Contains(policy[1], "default-src &#39;none&#39;") || strings.Contains(policy[1], "unsafe") {
		t.Errorf("policy %q", policy)
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
