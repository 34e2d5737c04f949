package main_test

import (
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
)

// A recordedSeries is what a server said at /metrics, scrape by scrape.
type recordedSeries struct {
	scrapes int
	values  map[string][]string // by name and labels
}

// scrape adds what the server says now.
func (m *recordedSeries) scrape(s *running) {
	_, text := s.call(http.MethodGet, s.admin+"/metrics", "", nil)
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		if !strings.HasPrefix(line, "stint_") && !strings.HasPrefix(line, "process_") || at < 0 {
			continue
		}
		name := line[:at]
		for len(m.values[name]) < m.scrapes {
			m.values[name] = append(m.values[name], "_")
		}
		m.values[name] = append(m.values[name], strings.TrimSpace(line[at:]))
	}
	m.scrapes++
}

// test writes a test of alert rules: what must be raised in the minute of a
// scrape, one a minute.
func (m *recordedSeries) test(rules string, raised map[int]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%q]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n", rules)
	for _, name := range slices.Sorted(maps.Keys(m.values)) {
		label := name + `{job="stint", instance="a"}`
		if before, ok := strings.CutSuffix(name, "}"); ok {
			label = before + `, job="stint", instance="a"}`
		}
		fmt.Fprintf(&b, "  - {series: '%s', values: '%s'}\n", label, strings.Join(m.values[name], " "))
	}
	b.WriteString("  promql_expr_test:\n")
	for _, minute := range slices.Sorted(maps.Keys(raised)) {
		fmt.Fprintf(&b, "  - expr: count by (alertname) (ALERTS{alertstate=\"firing\"})\n    eval_time: %dm\n    exp_samples:\n", minute)
		for name := range strings.FieldsSeq(raised[minute]) {
			fmt.Fprintf(&b, "    - {labels: '{alertname=%q}', value: 1}\n", name)
		}
	}
	return b.String()
}

// TestAlertsRecorded records the metrics of a server while its store is there and
// after it was killed, and has Prometheus say which alerts that raises.
func TestAlertsRecorded(t *testing.T) {
	need.Time(t)
	promtool := need.Program(t, "promtool")
	redis := startRedis(t, "")
	s := operated(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", serveRules), "--store", "redis://"+redis.address)
	m := &recordedSeries{values: make(map[string][]string)}
	ask := func() {
		for i := range 20 { // of others each time, or denials that are known need no store
			s.ask("/v1/check", fmt.Sprintf(`{"attributes":{"ip":"192.0.%d.%d"}}`, m.scrapes, i), "")
		}
		m.scrape(s)
	}
	for range 10 {
		ask()
	}
	redis.Kill()
	for range 10 {
		ask()
	}
	rules, err := filepath.Abs("../../deploy/prometheus/stint.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := m.test(rules, map[int]string{9: "", 18: "StintStoreFailing StintStoreUnreachable"})
	file := disk.Write(t, t.TempDir()+"/recorded.yaml", text)
	if said, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, said, text)
	}
}
