package dashboard

import (
	"bytes"
	"encoding/json"
)

// A row is panels under a title.
type row struct {
	title  string
	panels []panel
}

// A panel is one picture.
type panel struct {
	title, about string
	unit         string // of Grafana
	width        int    // of 24
	stat         bool   // one number in place of a graph
	stack        bool
	queries      []query
}

// A query is an expression, and what its series are called.
type query struct{ expr, legend string }

// of selects the series of the servers that are chosen.
const of = `job=~"$job", instance=~"$instance"`

var rows = []row{
	{"Requests", []panel{
		{"Requests", "What comes in, by interface.", "reqps", 8, false, true, []query{{`sum by (door) (rate(stint_decision_duration_seconds_count{` + of + `}[$__rate_interval]))`, "{{door}}"}}},
		{"Denied", "By the rule that denies. One request may be denied by several.", "reqps", 8, false, true, []query{
			{`sum by (rule) (rate(stint_decisions_total{` + of + `, decision=~"denied|blocked", rule=~"$rule"}[$__rate_interval])) > 0`, "{{rule}}"},
		}},
		{"Share denied", "Of what each rule holds.", "percentunit", 8, false, false, []query{
			{`sum by (rule) (rate(stint_decisions_total{` + of + `, decision=~"denied|blocked", rule=~"$rule"}[$__rate_interval])) / sum by (rule) (rate(stint_decisions_total{` + of + `, rule=~"$rule"}[$__rate_interval]))`, "{{rule}}"},
		}},
		{"Allowed", "By rule.", "reqps", 8, false, true, []query{{`sum by (rule) (rate(stint_decisions_total{` + of + `, decision="allowed", rule=~"$rule"}[$__rate_interval]))`, "{{rule}}"}}},
		{"Would be denied", "By rules in shadow.", "reqps", 8, false, false, []query{{`sum by (rule) (rate(stint_decisions_total{` + of + `, decision="shadow_denied", rule=~"$rule"}[$__rate_interval]))`, "{{rule}}"}}},
		{"Not decided", "By reason: a faulty request, a caller that has gone, a store that failed.", "reqps", 8, false, false, []query{{`sum by (reason) (rate(stint_undecided_total{` + of + `}[$__rate_interval]))`, "{{reason}}"}}},
		{"Time of a decision", "Half and 99 % of the decisions take no longer.", "s", 12, false, false, []query{
			{`histogram_quantile(0.5, sum by (le, door) (rate(stint_decision_duration_seconds_bucket{` + of + `}[$__rate_interval])))`, "{{door}} 50 %"},
			{`histogram_quantile(0.99, sum by (le, door) (rate(stint_decision_duration_seconds_bucket{` + of + `}[$__rate_interval])))`, "{{door}} 99 %"},
		}},
		{"Decided without the store", "By the rules' on_store_failure.", "reqps", 12, false, false, []query{{`sum by (fallback) (rate(stint_fallback_total{` + of + `}[$__rate_interval]))`, "{{fallback}}"}}},
	}},
	{"Rules and servers", []panel{
		{"Servers", "That can be scraped.", "none", 4, true, false, []query{{`count(stint_build_info{` + of + `})`, ""}}},
		{"Wrong rules", "Servers whose last rules were not taken.", "none", 4, true, false, []query{{`count(stint_config_last_reload_successful{` + of + `} == 0) or vector(0)`, ""}}},
		{"Rules taken", "How long ago, by server.", "s", 8, false, false, []query{{`time() - stint_config_last_reload_success_timestamp_seconds{` + of + `}`, "{{instance}}"}}},
		{"Snapshot", "How old, by server.", "s", 8, false, false, []query{{`time() - (stint_snapshot_last_success_timestamp_seconds{` + of + `} > 0)`, "{{instance}}"}}},
	}},
	{"Memory", []panel{
		{"Keys", "Of the most there can be.", "percentunit", 8, false, false, []query{{`stint_keys{` + of + `} / stint_keys_max{` + of + `}`, "{{instance}}"}}},
		{"Bytes of the store", "Limits, tables, logs and parts.", "bytes", 8, false, false, []query{{`stint_store_bytes{` + of + `}`, "{{instance}}"}}},
		{"No room", "Requests for which the memory of keys, logs or reservations was full.", "reqps", 8, false, false, []query{
			{`sum(rate(stint_full_keys_total{` + of + `}[$__rate_interval]))`, "keys"},
			{`sum(rate(stint_full_bytes_total{` + of + `}[$__rate_interval]))`, "logs and parts"},
			{`sum(rate(stint_full_reservations_total{` + of + `}[$__rate_interval]))`, "reservations"},
		}},
		{"Processor", "Seconds a second, by server.", "none", 8, false, false, []query{{`rate(process_cpu_seconds_total{` + of + `}[$__rate_interval]) and on (job, instance) stint_build_info`, "{{instance}}"}}},
		{"Resident memory", "By server.", "bytes", 8, false, false, []query{{`process_resident_memory_bytes{` + of + `} and on (job, instance) stint_build_info`, "{{instance}}"}}},
		{"Open files", "Connections among them.", "none", 8, false, false, []query{{`process_open_fds{` + of + `} and on (job, instance) stint_build_info`, "{{instance}}"}}},
	}},
	{"Shared store", []panel{
		{"Calls", "By what they came to.", "reqps", 8, false, true, []query{{`sum by (result) (rate(stint_store_calls_total{` + of + `}[$__rate_interval]))`, "{{result}}"}}},
		{"Time of a call", "Half and 99 % of the calls take no longer.", "s", 8, false, false, []query{
			{`histogram_quantile(0.5, sum by (le) (rate(stint_store_call_duration_seconds_bucket{` + of + `}[$__rate_interval])))`, "50 %"},
			{`histogram_quantile(0.99, sum by (le) (rate(stint_store_call_duration_seconds_bucket{` + of + `}[$__rate_interval])))`, "99 %"},
		}},
		{"Failures", "Requests for which the store failed, and servers that are not called.", "none", 8, false, false, []query{
			{`sum(rate(stint_store_errors_total{` + of + `}[$__rate_interval]))`, "requests a second"},
			{`sum(stint_store_breakers_open{` + of + `})`, "open breakers"},
		}},
		{"Owed", "Keys that owe the store what passed while it failed.", "none", 8, false, false, []query{{`stint_store_owing_keys{` + of + `}`, "{{instance}}"}}},
		{"Held keys", "With a lease in hand, or something to tell the store.", "none", 8, false, false, []query{{`stint_store_held_keys{` + of + `}`, "{{instance}}"}}},
		{"No room in the store", "Decisions on keys that newcomers share.", "reqps", 8, false, false, []query{{`sum(rate(stint_store_overflowed_total{` + of + `}[$__rate_interval]))`, "decisions"}}},
	}},
}

type object = map[string]any

// grafana returns the dashboard, as Grafana 10 and later import it.
func grafana() (string, error) {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []any
	id, y := 0, 0
	for _, r := range rows {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": r.title, "collapsed": false, "panels": []any{}, "gridPos": object{"h": 1, "w": 24, "x": 0, "y": y}})
		y++
		x := 0
		for i := range r.panels {
			p := &r.panels[i]
			if x+p.width > 24 {
				x, y = 0, y+8
			}
			id++
			panels = append(panels, p.object(id, source, object{"h": 8, "w": p.width, "x": x, "y": y}))
			x += p.width
		}
		y += 8
	}
	dashboard := object{
		"uid": "stint", "title": "stint", "tags": []any{"stint"}, "schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1,
		"description": "Rate limits: what passes and what is denied, by rule; servers, memory and the shared store.",
		"time":        object{"from": "now-3h", "to": "now"}, "refresh": "30s", "timezone": "browser",
		"panels":      panels,
		"templating":  object{"list": variables(source)},
		"annotations": object{"list": []any{object{"name": "Rules taken", "datasource": source, "enable": true, "iconColor": "blue", "expr": `changes(stint_config_last_reload_success_timestamp_seconds{` + of + `}[1m]) > 0`, "titleFormat": "rules taken on {{instance}}"}}},
		"links":       []any{object{"title": "Runbook", "type": "link", "url": runbookURL, "targetBlank": true}},
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(dashboard)
	return b.String(), err
}

// variables are what one chooses at the top of the dashboard.
func variables(source object) []any {
	all := []any{object{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": object{}}}
	for _, v := range []struct{ name, query string }{
		{"job", `label_values(stint_build_info, job)`},
		{"instance", `label_values(stint_build_info{job=~"$job"}, instance)`},
		{"rule", `label_values(stint_decisions_total{` + of + `}, rule)`},
	} {
		all = append(all, object{
			"name": v.name, "type": "query", "datasource": source, "query": object{"query": v.query, "refId": v.name}, "definition": v.query,
			"refresh": 2, "multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"}, "sort": 1,
		})
	}
	return all
}

func (p *panel) object(id int, source, at object) object {
	var targets []any
	for i, q := range p.queries {
		legend := q.legend
		if legend == "" {
			legend = p.title
		}
		targets = append(targets, object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr, "legendFormat": legend})
	}
	custom := object{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
	if p.stack {
		custom["stacking"], custom["fillOpacity"] = object{"mode": "normal", "group": "A"}, 30
	}
	one := object{
		"id": id, "type": "timeseries", "title": p.title, "description": p.about, "datasource": source, "gridPos": at, "targets": targets,
		"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0, "custom": custom}, "overrides": []any{}},
		"options":     object{"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true}, "tooltip": object{"mode": "multi", "sort": "desc"}},
	}
	if p.stat {
		one["type"] = "stat"
		one["fieldConfig"] = object{"defaults": object{"unit": p.unit}, "overrides": []any{}}
		one["options"] = object{"reduceOptions": object{"calcs": []any{"lastNotNull"}}, "colorMode": "none"}
	}
	return one
}
