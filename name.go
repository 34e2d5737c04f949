package stint

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/meter"
)

// State belongs to a name, which limits are bound under ([Store.Bind]), and to
// a key. Of several limits under one name each is known by its ID.

// ID returns what identifies a limit among others under one name: its own name
// ([Limit.WithName]), else its algorithm and its period, such as "gcra:1m". It is
// never its count or its burst, so that those may change.
func (l Limit) ID() string {
	if l.name != "" {
		return l.name
	}
	if l.spec.Calendar != meter.NoCalendar {
		return l.spec.Calendar.String() + ":" + l.spec.Zone
	}
	return l.spec.Algorithm.String() + ":" + formatPeriod(l.spec.Period)
}

// CheckBind returns why limits cannot be bound together under a name, or nil.
// Every [Store] calls it first. It does not say whether a limit can be held:
// that is [Limit.Validate].
func CheckBind(name string, limits []Limit) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("stint: limits under %w", err)
	}
	if len(limits) == 0 || len(limits) > MaxLimits {
		return fmt.Errorf("%w: %d limits under the name %q: from 1 to %d", ErrLayers, len(limits), name, MaxLimits)
	}
	known := make(map[string]bool, len(limits))
	for _, l := range limits {
		id := l.ID()
		if known[id] {
			return fmt.Errorf("%w: two limits %q under the name %q: give them names of their own, WithName", ErrLayers, wording.Shorten(id), name)
		}
		known[id] = true
	}
	return nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New(`an empty name: what keys have used belongs to it: write what they limit, such as "login"`)
	case len(name) > maxName:
		return fmt.Errorf("a name of %d bytes: at most %d", len(name), maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, isControl):
		return fmt.Errorf("the name %q: it must be UTF-8 without control characters", name)
	}
	return nil
}
