package nginxrules

import (
	"fmt"
	"slices"
)

// A Note says what means something else as a rule than it did, or what is not kept.
type Note struct {
	Text string // with file and line
	// Lost is whether a limit, or a part of one, is not kept.
	Lost bool
}

// note says what differs without a limit being lost.
func (c *converter) note(d *Directive, format string, args ...any) { c.say(d, false, format, args...) }

// lose says which limit is not kept.
func (c *converter) lose(d *Directive, format string, args ...any) { c.say(d, true, format, args...) }

func (c *converter) say(d *Directive, lost bool, format string, args ...any) {
	n := Note{d.where() + ": " + fmt.Sprintf(format, args...), lost}
	if !slices.Contains(c.notes, n) {
		c.notes = append(c.notes, n)
	}
}
