package otlp

import (
	"math"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// cumulative is that a value counts from the start of the program.
const cumulative = 2

// metrics returns what /metrics has as OTLP has it.
func (e *Exporter) metrics(families []*dto.MetricFamily, now time.Time) []any {
	all := []any{}
	for _, f := range families {
		var points []any
		for _, m := range f.GetMetric() {
			if p := e.point(f.GetType(), m, now); p != nil {
				points = append(points, p)
			}
		}
		if points == nil {
			continue
		}
		data := map[string]any{"dataPoints": points}
		kind := ""
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			kind, data["isMonotonic"], data["aggregationTemporality"] = "sum", true, cumulative
		case dto.MetricType_HISTOGRAM:
			kind, data["aggregationTemporality"] = "histogram", cumulative
		case dto.MetricType_SUMMARY:
			kind = "summary"
		default:
			kind = "gauge"
		}
		all = append(all, map[string]any{"name": f.GetName(), "description": f.GetHelp(), kind: data})
	}
	return all
}

// point returns one series; nil for one that JSON has no number for.
func (e *Exporter) point(kind dto.MetricType, m *dto.Metric, now time.Time) map[string]any {
	attributes := []attribute{}
	for _, l := range m.GetLabel() {
		attributes = append(attributes, text(l.GetName(), l.GetValue()))
	}
	p := map[string]any{"attributes": attributes, "startTimeUnixNano": nanos(e.began), "timeUnixNano": nanos(now)}
	value := 0.0
	switch kind {
	case dto.MetricType_COUNTER:
		value = m.GetCounter().GetValue()
	case dto.MetricType_HISTOGRAM:
		h := m.GetHistogram()
		p["count"], p["sum"] = unsigned(h.GetSampleCount()), h.GetSampleSum()
		bounds, counts, before := []float64{}, []string{}, uint64(0)
		for _, b := range h.GetBucket() {
			if !math.IsInf(b.GetUpperBound(), 1) {
				bounds = append(bounds, b.GetUpperBound())
				counts = append(counts, unsigned(b.GetCumulativeCount()-before))
				before = b.GetCumulativeCount()
			}
		}
		p["explicitBounds"], p["bucketCounts"] = bounds, append(counts, unsigned(h.GetSampleCount()-before))
		return p
	case dto.MetricType_SUMMARY:
		s := m.GetSummary()
		p["count"], p["sum"] = unsigned(s.GetSampleCount()), s.GetSampleSum()
		quantiles := []any{}
		for _, q := range s.GetQuantile() {
			if !math.IsNaN(q.GetValue()) {
				quantiles = append(quantiles, map[string]float64{"quantile": q.GetQuantile(), "value": q.GetValue()})
			}
		}
		p["quantileValues"] = quantiles
		return p
	case dto.MetricType_GAUGE:
		value = m.GetGauge().GetValue()
	default:
		value = m.GetUntyped().GetValue()
	}
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return nil
	}
	p["asDouble"] = value
	return p
}

func unsigned(n uint64) string { return strconv.FormatUint(n, 10) }
