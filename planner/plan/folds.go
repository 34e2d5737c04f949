package plan

import "time"

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
