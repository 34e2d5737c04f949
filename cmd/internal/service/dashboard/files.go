package dashboard

import (
	"path/filepath"
	"strings"
)

// Files returns what each file holds, by its path, in a directory of files that
// other programs load and one of documents.
func Files(deploy, docs string) (map[string]string, error) {
	text, err := grafana()
	return map[string]string{
		filepath.Join(deploy, "grafana", "stint.json"):          text,
		filepath.Join(deploy, "prometheus", "stint.rules.yaml"): alertRules(),
		filepath.Join(docs, "RUNBOOK.md"):                       runbook(),
	}, err
}

// Expressions returns every expression of the dashboard and of the alerts, the
// variables of the dashboard replaced.
func Expressions() (all []string) {
	for _, r := range rows {
		for _, p := range r.panels {
			for _, q := range p.queries {
				all = append(all, variable.Replace(q.expr))
			}
		}
	}
	for i := range alerts {
		all = append(all, alerts[i].expr)
	}
	return all
}

var variable = strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*", "$rule", ".*")

// Alerts returns the names of the alerts.
func Alerts() (names []string) {
	for i := range alerts {
		names = append(names, alerts[i].name)
	}
	return names
}
