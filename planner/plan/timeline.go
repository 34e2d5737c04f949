package plan

import "time"

// widths are the widths that a bar of the timeline may have: each divides the next.
var widths = []time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 48 * time.Hour, 96 * time.Hour, 192 * time.Hour, 384 * time.Hour,
	768 * time.Hour, 1536 * time.Hour, 3072 * time.Hour, 12288 * time.Hour, 49152 * time.Hour,
}

// mostBars is how many bars a timeline has at most.
const mostBars = 300

// A timeline counts by bars of equal width, aligned to the epoch. The bars get wider with the time
// that it must hold.
type timeline struct {
	width int   // index in widths
	base  int64 // number of the first bar
	bars  []int64
	end   int64 // when the last bar ends, so that most requests need no division
}

// add counts a moment, which must not be before the first one.
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

// fit returns the counts by the bars of another timeline. Counts outside of that timeline, such as
// requests of ignored clients, are dropped.
func (t *timeline) fit(all *timeline) []int64 {
	bars := make([]int64, len(all.bars))
	own := timeline{width: t.width, base: t.base, bars: append([]int64(nil), t.bars...)}
	if len(own.bars) > 0 {
		own.widen(all.width)
	}
	by := int64(widths[max(own.width, all.width)] / widths[all.width]) // above 1 if the other is much shorter
	for i, n := range own.bars {
		if at := (own.base+int64(i))*by - all.base; at >= 0 && at < int64(len(bars)) {
			bars[at] += n
		}
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
