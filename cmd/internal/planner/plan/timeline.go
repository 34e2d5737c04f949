package plan

import "time"

// widths are those that a bar of the timeline may have: each divides the next.
var widths = []time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 48 * time.Hour, 96 * time.Hour, 192 * time.Hour, 384 * time.Hour,
	768 * time.Hour, 1536 * time.Hour, 3072 * time.Hour, 12288 * time.Hour, 49152 * time.Hour,
}

// mostBars is how many bars a timeline has at most.
const mostBars = 300

// A timeline counts by bars of equal width, aligned to the epoch, which grow
// with the time that it must hold.
type timeline struct {
	width int   // among widths
	base  int64 // the number of the first bar
	bars  []int64
	end   int64 // when the last bar ends, so that most requests need no division
}

// add counts a moment, which is not before the first one.
func (t *timeline) add(at int64) {
	if at < t.end && at >= t.end-int64(widths[t.width]) && len(t.bars) > 0 {
		t.bars[len(t.bars)-1]++
		return
	}
	t.slow(at)
}

func (t *timeline) slow(at int64) {
	w := int64(widths[t.width])
	if len(t.bars) == 0 {
		t.base = at / w
	}
	for i := at/w - t.base; i >= mostBars && t.width < len(widths)-1; i = at/w - t.base {
		t.widen(t.width + 1)
		w = int64(widths[t.width])
	}
	i := at/w - t.base
	for int64(len(t.bars)) <= i {
		t.bars = append(t.bars, 0)
	}
	t.bars[i]++
	t.end = (t.base + int64(len(t.bars))) * w
}

// widen brings the bars to a greater width.
func (t *timeline) widen(to int) {
	for t.width < to {
		by := int64(widths[t.width+1] / widths[t.width])
		base := t.base / by
		var bars []int64
		for i, n := range t.bars {
			j := (t.base+int64(i))/by - base
			for int64(len(bars)) <= j {
				bars = append(bars, 0)
			}
			bars[j] += n
		}
		t.base, t.bars = base, bars
		t.width++
	}
	t.end = (t.base + int64(len(t.bars))) * int64(widths[t.width])
}

// farParts: what is far from the rest lies behind a gap of nine tenths of all
// the time, and is less than a hundredth of the requests.
const (
	farGap  = 0.9
	farPart = 0.01
)

// faraway returns how many requests lie far from the rest, whether they are
// before it, and where the rest begins or ends.
func (t *timeline) faraway() (n int64, before bool, edge int64) {
	start, longest, last, total := 0, 0, -1, int64(0)
	for i, count := range t.bars {
		if total += count; count == 0 {
			continue
		}
		if i-last > longest && last >= 0 {
			start, longest = last, i-last
		}
		last = i
	}
	if float64(longest) < farGap*float64(len(t.bars)) || longest < 10 {
		return 0, false, 0
	}
	w, early := int64(widths[t.width]), int64(0)
	for _, count := range t.bars[:start+1] {
		early += count
	}
	switch {
	case float64(early) < farPart*float64(total):
		return early, true, (t.base + int64(start+longest)) * w
	case float64(total-early) < farPart*float64(total):
		return total - early, false, (t.base + int64(start) + 1) * w
	}
	return 0, false, 0
}

// fit returns the counts over the bars of another timeline, which holds all of
// this one's time.
func (t *timeline) fit(all *timeline) []int64 {
	bars := make([]int64, len(all.bars))
	own := timeline{width: t.width, base: t.base, bars: append([]int64(nil), t.bars...)}
	if len(own.bars) > 0 {
		own.widen(all.width)
	}
	for i, n := range own.bars {
		bars[own.base-all.base+int64(i)] += n
	}
	return bars
}

// A series is the requests of the whole log over time.
type series struct{ timeline }

func (s *series) add(events []event) {
	for i := range events {
		s.timeline.add(events[i].at)
	}
}
