package plan

import (
	"bytes"
	"context"
	"time"

	"github.com/stint-dev/stint/cmd/internal/planner/accesslog"
)

// needles is how many of a log's first lines must stand in another for the two to
// overlap.
const needles = 3

// overlap finds a log that begins within another, as a copy does that was made
// later, and notes it. Only logs of the same time are looked at, since it costs
// another reading.
func (r *reading) overlap(ctx context.Context) error {
	for _, a := range r.inputs {
		for _, b := range r.inputs {
			if a == b || b.first < a.first || b.first > a.latest || bytes.Equal(a.head, b.head) {
				continue
			}
			within, err := a.holds(ctx, firstLines(b.head))
			if err != nil {
				return err
			}
			if within {
				r.overlaps = [2]string{b.about.Name, a.about.Name}
				return nil
			}
		}
	}
	return nil
}

// firstLines returns the first different lines of a log that say anything.
func firstLines(head []byte) (lines [][]byte) {
	for len(head) > 0 && len(lines) < needles {
		var line []byte
		if line, head = accesslog.Line(head); len(line) >= shortLine && line[0] != '#' && (len(lines) == 0 || !bytes.Equal(line, lines[len(lines)-1])) {
			lines = append(lines, line)
		}
	}
	return lines
}

// shortLine is how long a line must be to be found by.
const shortLine = 20

// holds reports whether the log has all of the lines.
func (in *input) holds(ctx context.Context, lines [][]byte) (bool, error) {
	if len(lines) < needles {
		return false, nil
	}
	file, err := in.open(ctx)
	if err != nil {
		return false, err
	}
	defer file.Close()
	for block, err := file.Next(nil); err == nil && len(lines) > 0 && ctx.Err() == nil; block, err = file.Next(block) {
		for len(lines) > 0 && bytes.Contains(block, lines[0]) {
			lines = lines[1:]
		}
	}
	return len(lines) == 0, nil
}

// A fold is a stretch of time whose hours clocks showed once more after it, when
// they were set back.
type fold struct{ from, to int64 }

// foldsOf returns those of a zone, from a moment on, that a log may hold which
// was last written then.
func foldsOf(zone *time.Location, first int64, written time.Time) (all []fold) {
	if written.IsZero() {
		written = time.Now()
	}
	for at := time.Unix(0, first).In(zone).Add(-24 * time.Hour); at.Before(written) && len(all) < 200; {
		_, end := at.ZoneBounds()
		if end.IsZero() {
			break
		}
		_, before := end.Add(-time.Second).Zone()
		_, after := end.Zone()
		if back := int64(before-after) * 1e9; back > 0 {
			all = append(all, fold{end.UnixNano() - back, end.UnixNano()})
		}
		at = end
	}
	return all
}

// unfold moves a time that clocks showed twice to where it belongs: to its second
// showing, once the log is past the middle of the first.
func (in *input) unfold(at int64) int64 {
	for _, f := range in.folds {
		if at >= f.from && at < f.to && in.latest-at >= (f.to-f.from)/2 {
			return at + f.to - f.from
		}
	}
	return at
}
