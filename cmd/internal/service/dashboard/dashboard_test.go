package dashboard_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-dev/stint/cmd/internal/service/dashboard"
)

const deploy, docs = "../../../../deploy", "../../../../docs"

// promtool runs Prometheus' own tool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not here: make needs installs it")
	}
	if said, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, said)
	}
}

// TestFiles holds what is checked in to what the package makes.
func TestFiles(t *testing.T) {
	files, err := dashboard.Files(deploy, docs)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s is not what there is now: make dashboard (%v)", path, err)
		}
	}
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
	for _, name := range dashboard.Alerts() {
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
	for i, expr := range dashboard.Expressions() {
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
	text, err := os.ReadFile(deploy + "/grafana/stint.json")
	if err != nil {
		t.Fatal(err)
	}
	type place struct{ X, Y, W, H int }
	var all struct {
		UID, Title string
		Panels     []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  place
			Targets                  []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal(text, &all); err != nil || all.UID == "" || all.Title == "" || len(all.Panels) < 20 {
		t.Fatalf("%v, %d panels", err, len(all.Panels))
	}
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
