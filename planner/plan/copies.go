package plan

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/stint-dev/stint/planner/accesslog"
)

// copies finds logs whose beginning stands in another, as that of a copy does which
// was made later, or in the same again, as where a log was joined with a copy of
// itself, and notes them. It costs another reading: only logs of the same time are
// looked at, and of one itself only where lines go back.
func (r *reading) copies(ctx context.Context) error {
	for _, a := range r.inputs {
		for _, b := range r.inputs {
			least := 1
			switch {
			case a == b && r.late <= int64(lateLine), a != b && (b.first < a.first || b.first > a.latest || bytes.Equal(a.head, b.head)):
				continue
			case a == b:
				least = 2
			}
			held, err := a.holds(ctx, groups(b.head), least)
			switch {
			case err != nil:
				return err
			case held && a == b:
				r.repeated = a.about.Name
				return nil
			case held:
				r.overlaps = [2]string{b.about.Name, a.about.Name}
				return nil
			}
		}
	}
	return nil
}

// shortLine is how long a line must be to be found by.
const shortLine = 20

// A group is some lines that follow one another: groupLines, groupApart from one
// group to the next.
const (
	groupLines = 3
	groupApart = 10
	mostGroups = 3
)

// groups returns the text of groups of different lines at the beginning of a log.
func groups(head []byte) (all [][]byte) {
	for rest := head; len(all) < mostGroups; {
		text, lines := rest, map[string]bool{}
		for i := range groupApart {
			_, after := accesslog.Line(rest)
			if after == nil {
				return all
			}
			if line := rest[:len(rest)-len(after)]; i < groupLines && len(line) > shortLine {
				lines[string(line)] = true
			}
			if rest = after; i == groupLines-1 {
				text = text[:len(text)-len(rest)]
			}
		}
		if len(lines) == groupLines {
			all = append(all, text)
		}
	}
	return all
}

// holds reports whether all groups but one stand in the log, so many times at least:
// that one may be where two blocks meet.
func (in *input) holds(ctx context.Context, groups [][]byte, least int) (bool, error) {
	if len(groups) < mostGroups {
		return false, nil
	}
	file, err := in.open()
	if err != nil {
		return false, err
	}
	defer file.Close()
	var found [mostGroups]int
	for block := []byte(nil); ctx.Err() == nil; {
		if block, err = file.Next(block); err != nil {
			break
		}
		enough := 0
		for i, text := range groups {
			if found[i] += bytes.Count(block, text); found[i] >= least {
				enough++
			}
		}
		if enough >= mostGroups-1 {
			return true, nil
		}
	}
	if errors.Is(err, io.EOF) || in.about.Error != "" { // where the first reading ended, too
		err = nil
	}
	return false, err
}

// Lines are doubled if there are enough different ones, and nearly each stands an
// even number of times.
const (
	leastDoubled  = 20
	doubledPart   = 0.95
	longestSample = 4000 // lines
)

// doubled reports whether each request was written twice.
func doubled(head []byte) bool {
	times := make(map[string]int)
	for n := 0; n < longestSample; n++ {
		line, rest := accesslog.Line(head)
		if rest == nil {
			break // without its end: maybe cut off
		}
		if head = rest; len(line) > shortLine {
			times[string(line)]++
		}
	}
	even := 0
	for _, n := range times {
		if n%2 == 0 {
			even++
		}
	}
	return len(times) >= leastDoubled && float64(even) >= doubledPart*float64(len(times))
}
