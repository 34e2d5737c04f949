package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table prints a Markdown table: the first column is text, others are numbers; the
// first row is the head.
func (f *Figures) Table(rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	fmt.Fprintln(f.Out)
	for n, row := range rows {
		line, rule := "|", "|"
		for i, cell := range row {
			gap := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line += " " + cell + gap + " |"
				rule += strings.Repeat("-", width[i]+2) + "|"
			} else {
				line += " " + gap + cell + " |"
				rule += strings.Repeat("-", width[i]+1) + ":|"
			}
		}
		fmt.Fprintln(f.Out, line)
		if n == 0 {
			fmt.Fprintln(f.Out, rule)
		}
	}
}

// Number prints three digits that count, two of what is small, and no more than whole
// numbers above.
func Number(v float64) string {
	switch {
	case v == float64(int64(v)) || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v < 0.1:
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Median returns the median; 0 of nothing.
func Median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return 0
	}
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

// Ratio is the median of the ratios of the rounds.
func Ratio(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return Median(ratios)
}
