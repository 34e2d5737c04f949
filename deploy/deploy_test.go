// Package deploy_test looks at what operators load into other programs: the alert
// rules for Prometheus, with their tests, and the dashboard for Grafana; and at the
// runbook that the alerts link to.
package deploy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const deploy, docs = ".", "../docs"

// promtool runs Prometheus' own tool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("missing: promtool")
	}
	if said, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, said)
	}
}

// alertNames returns the names of the alerts.
func alertNames(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile(deploy + "/prometheus/stint.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	if len(names) < 10 {
		t.Fatalf("alerts %v", names)
	}
	return names
}

// A grafanaDashboard is what the tests look at.
type grafanaDashboard struct {
	UID, Title string
	Panels     []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct{ Expr, RefID string }
	}
}

func readDashboard(t *testing.T) (all grafanaDashboard) {
	t.Helper()
	text, err := os.ReadFile(deploy + "/grafana/stint.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &all); err != nil || all.UID == "" || all.Title == "" || len(all.Panels) < 20 {
		t.Fatalf("%v, %d panels", err, len(all.Panels))
	}
	return all
}

// expressions returns what the dashboard asks Prometheus, its variables replaced.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	variable := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*", "$rule", ".*")
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			all = append(all, variable.Replace(q.Expr))
		}
	}
	return all
}

// TestAlerts runs the tests of the alert rules, and holds that each alert is
// tested as one that is raised and as one that is not, and has its section of the
// runbook.
func TestAlerts(t *testing.T) {
	promtool(t, "check", "rules", deploy+"/prometheus/stint.rules.yaml")
	promtool(t, "test", "rules", deploy+"/prometheus/stint_test.yaml")
	text, err := os.ReadFile(deploy + "/prometheus/stint_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(docs + "/RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range alertNames(t) {
		if !regexp.MustCompile(`alertname: ` + name + `\n +exp_alerts:`).Match(text) {
			t.Errorf("%s: no test raises it", name)
		}
		if !strings.Contains(string(text), "alertname: "+name+"}") {
			t.Errorf("%s: no test shows that it is not raised", name)
		}
		if !strings.Contains(string(page), "\n## "+name+"\n") {
			t.Errorf("%s: no runbook", name)
		}
		if !strings.Contains(string(text), "RUNBOOK.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("%s: no test of the link to its runbook", name)
		}
	}
}

// TestExpressions has Prometheus read every expression of the dashboard, and looks
// for every metric of ours among those that are documented.
func TestExpressions(t *testing.T) {
	known, err := os.ReadFile(docs + "/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for i, expr := range expressions(t) {
		fmt.Fprintf(&b, "  - record: dashboard:expression:%d\n    expr: %s\n", i, quoted(expr))
		for _, name := range regexp.MustCompile(`\bstint_[a-z_]+`).FindAllString(expr, -1) {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
			if !strings.Contains(string(known), "`"+name+"`") {
				t.Errorf("%s: docs/METRICS.md has no %s", expr, name)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

func quoted(text string) string {
	b, err := json.Marshal(text) // which YAML reads too
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TestPanels holds the dashboard to what Grafana needs: panels with ids of their own
// that do not cover one another, each with a question and what it is about.
func TestPanels(t *testing.T) {
	all := readDashboard(t)
	ids, taken := make(map[int]bool), make(map[[2]int]string)
	for _, p := range all.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
			t.Errorf("%+v", p)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s covers %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// TestMetricsHaveRunbook holds that each metric of docs/METRICS.md, which another
// test holds to those that there are, says what to do about it; that the runbook
// names no other metrics; and that links lead to alerts that there are.
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
	for _, row := range regexp.MustCompile("(?m)^\\| `(stint_\\w+)` \\|.*\\|([^|]*)\\|$").FindAllStringSubmatch(metrics, -1) {
		if there[row[1]] = true; strings.TrimSpace(row[2]) == "" {
			t.Errorf("docs/METRICS.md does not say what to do about %s", row[1])
		}
	}
	if len(there) < 40 {
		t.Fatalf("docs/METRICS.md has %d metrics", len(there))
	}
	for _, one := range regexp.MustCompile(`\bstint_[a-z_]+`).FindAllString(page, -1) {
		if one = strings.TrimSuffix(strings.TrimSuffix(one, "_bucket"), "_count"); !there[one] {
			t.Errorf("docs/RUNBOOK.md names %s, which docs/METRICS.md does not have", one)
		}
	}
	alerts := make(map[string]bool)
	for _, alert := range alertNames(t) {
		alerts[strings.ToLower(alert)] = true
	}
	for _, link := range regexp.MustCompile(`\]\((?:RUNBOOK\.md)?#(stint[a-z]+)\)`).FindAllStringSubmatch(metrics+page, -1) {
		if !alerts[link[1]] {
			t.Errorf("a link leads to #%s, which is no alert", link[1])
		}
	}
}
