package dashboard_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-dev/stint/cmd/internal/service/dashboard"
)

// TestMetricsHaveRunbook holds that each metric of docs/METRICS.md, which another
// test holds to those that there are, is one that an alert goes by or has its row
// in the runbook; that the runbook names no other metrics; and that its links lead
// to sections that there are.
func TestMetricsHaveRunbook(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(docs + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	metrics, page := read("METRICS.md"), read("RUNBOOK.md")
	there := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| `(stint_\\w+)` \\|").FindAllStringSubmatch(metrics, -1) {
		there[m[1]] = true
	}
	if len(there) < 40 {
		t.Fatalf("docs/METRICS.md has %d metrics", len(there))
	}
	name := regexp.MustCompile(`\bstint_[a-z_]+`)
	has := make(map[string]bool)
	for _, block := range regexp.MustCompile("(?s)```\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for _, one := range name.FindAllString(block[1], -1) {
			has[strings.TrimSuffix(strings.TrimSuffix(one, "_bucket"), "_count")] = true
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(stint_\\w+)` \\|").FindAllStringSubmatch(page, -1) {
		has[row[1]] = true
	}
	for one := range there {
		if !has[one] {
			t.Errorf("%s: no alert goes by it, and docs/RUNBOOK.md has no row of it", one)
		}
	}
	for _, one := range name.FindAllString(page, -1) {
		if one = strings.TrimSuffix(strings.TrimSuffix(one, "_bucket"), "_count"); !there[one] {
			t.Errorf("docs/RUNBOOK.md names %s, which docs/METRICS.md does not have", one)
		}
	}
	sections := map[string]bool{"metrics-without-an-alert-of-their-own": true}
	for _, alert := range dashboard.Alerts() {
		sections[strings.ToLower(alert)] = true
	}
	for _, link := range regexp.MustCompile(`\]\(#([a-z-]+)\)`).FindAllStringSubmatch(page, -1) {
		if !sections[link[1]] {
			t.Errorf("docs/RUNBOOK.md links to #%s, which is not there", link[1])
		}
	}
}
