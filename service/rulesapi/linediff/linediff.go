// Package linediff says how two texts differ, line by line.
package linediff

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// around is how many lines that are the same are shown around a change.
	around = 3
	// most is how many lines may differ before the search for what they have in
	// common is given up: it takes memory by the square of that.
	most = 2000
)

// Unified returns what turns one text into another in the unified format of
// diff; "" if they are the same. Texts that have little in common are shown as
// one that goes and one that comes.
func Unified(fromName, toName, from, to string) string {
	if from == to {
		return ""
	}
	a, b := lines(from), lines(to)
	edits := compare(a, b)
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", fromName, toName)
	for first := 0; first < len(edits); {
		last := first + 1
		for last < len(edits) && edits[last].a-edits[last-1].aEnd <= 2*around {
			last++
		}
		hunk(&out, a, b, edits[first:last])
		first = last
	}
	return out.String()
}

func lines(text string) []string {
	return slices.Collect(strings.Lines(text))
}

// An edit replaces lines a to aEnd of one text by lines b to bEnd of the other.
type edit struct{ a, aEnd, b, bEnd int }

// hunk writes edits that are close to each other.
func hunk(out *strings.Builder, a, b []string, edits []edit) {
	first, last := edits[0], edits[len(edits)-1]
	lead := min(around, first.a)
	tail := min(around, len(a)-last.aEnd)
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(first.a-lead, last.aEnd+tail), span(first.b-lead, last.bEnd+tail))
	at := first.a - lead
	for _, e := range edits {
		write(out, ' ', a[at:e.a])
		write(out, '-', a[e.a:e.aEnd])
		write(out, '+', b[e.b:e.bEnd])
		at = e.aEnd
	}
	write(out, ' ', a[at:last.aEnd+tail])
}

// span writes lines begin to end, counted from 0, as diff does.
func span(begin, end int) string {
	switch end - begin {
	case 0:
		return fmt.Sprintf("%d,0", begin)
	case 1:
		return fmt.Sprint(begin + 1)
	}
	return fmt.Sprintf("%d,%d", begin+1, end-begin)
}

func write(out *strings.Builder, mark byte, lines []string) {
	for _, l := range lines {
		out.WriteByte(mark)
		out.WriteString(l)
		if !strings.HasSuffix(l, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// compare returns the edits that turn a into b, by the algorithm of Myers.
func compare(a, b []string) []edit {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	aEnd, bEnd := len(a), len(b)
	for aEnd > head && bEnd > head && a[aEnd-1] == b[bEnd-1] {
		aEnd, bEnd = aEnd-1, bEnd-1
	}
	edits, ok := search(a[head:aEnd], b[head:bEnd])
	if !ok {
		edits = []edit{{0, aEnd - head, 0, bEnd - head}}
	}
	for i := range edits {
		e := &edits[i]
		e.a, e.aEnd, e.b, e.bEnd = e.a+head, e.aEnd+head, e.b+head, e.bEnd+head
	}
	return edits
}

// search finds the shortest way from a to b: reach[d] has, for each diagonal,
// how far one gets in a with d lines taken away or put in.
func search(a, b []string) (edits []edit, ok bool) {
	var reach [][]int32
	now := make([]int32, 2*most+3)
	for d := 0; d <= most; d++ {
		reach = append(reach, slices.Clone(now[most+1-d:most+2+d]))
		for k := -d; k <= d; k += 2 {
			x := step(now, k, d)
			y := x - k
			for x < len(a) && y < len(b) && a[x] == b[y] {
				x, y = x+1, y+1
			}
			now[most+1+k] = int32(x)
			if x >= len(a) && y >= len(b) {
				return retrace(reach, len(a), len(b)), true
			}
		}
	}
	return nil, false
}

// step returns where diagonal k is entered with the d-th edit.
func step(reach []int32, k, d int) int {
	mid := len(reach) / 2
	switch {
	case d == 0:
		return 0
	case k == -d, k != d && reach[mid+k-1] < reach[mid+k+1]:
		return int(reach[mid+k+1])
	}
	return int(reach[mid+k-1]) + 1
}

// retrace goes back from the ends and joins neighbouring edits.
func retrace(reach [][]int32, x, y int) (edits []edit) {
	for d := len(reach) - 1; d > 0; d-- {
		r, k := reach[d], x-y // r[d+k] is diagonal k before the d-th edit
		from := k - 1
		if k == -d || k != d && r[d+k-1] < r[d+k+1] {
			from = k + 1
		}
		px := int(r[d+from])
		py := px - from
		e := edit{px, px, py, py + 1}
		if from < k {
			e = edit{px, px + 1, py, py}
		}
		if n := len(edits); n > 0 && edits[n-1].a == e.aEnd && edits[n-1].b == e.bEnd {
			edits[n-1].a, edits[n-1].b = e.a, e.b
		} else {
			edits = append(edits, e)
		}
		x, y = px, py
	}
	slices.Reverse(edits)
	return edits
}
