package envoyrules

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy/rulesfile"

	"github.com/stint-dev/stint/service/importers"
)

// A Domain is the descriptors of one domain, from one file or several. Faulty says that some
// of them are wrong; see [Domain.Keep].
type Domain struct {
	Name        string
	Faulty      bool
	descriptors []*descriptor
}

// Descriptors returns how many descriptors the domain has, on all levels.
func (d *Domain) Descriptors() int { return count(d.descriptors) }

func count(level []*descriptor) int {
	n := len(level)
	for _, d := range level {
		n += count(d.below)
	}
	return n
}

// A descriptor is a node of the configuration's tree. It matches an entry of a request's
// descriptor, and its limit applies if that entry is the last.
type descriptor struct {
	key, value string // without a value, it takes any that no sibling takes
	limit      *limit
	below      []*descriptor
	shadow     bool
	quota      bool
	share      bool // all values under a star share one counter
	dropped    []dropped
	at         place
	// wrong is why the descriptor and all below it cannot be used, and wrongLimit why its
	// limit cannot; nil if they can.
	wrong, wrongLimit *rulesfile.Error
}

// An id identifies a descriptor among its siblings.
type id struct{ key, value string }

func (d *descriptor) id() id { return id{d.key, d.value} }

// A place is a line of a file.
type place struct {
	file string
	line int
}

func (p place) String() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}

// A dropped field is a field that has no counterpart in a rule.
type dropped struct {
	field string
	at    place
}

// star reports whether the value has stars, each of which stands for any text.
func (d *descriptor) star() bool { return strings.Contains(d.value, "*") }

// pattern returns the value as a pattern of a rule.
func (d *descriptor) pattern() string {
	parts := strings.Split(d.value, "*")
	for i := range parts {
		parts[i] = importers.Escape(parts[i])
	}
	return strings.Join(parts, "*")
}

// takes reports whether a descriptor with stars takes a value.
func (d *descriptor) takes(value string) bool {
	parts := strings.Split(d.value, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(value) < len(first)+len(last) || !strings.HasPrefix(value, first) || !strings.HasSuffix(value, last) {
		return false
	}
	value = value[len(first) : len(value)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, ok := strings.Cut(value, part)
		if !ok {
			return false
		}
		value = rest
	}
	return true
}

// A limit is the rate_limit of a descriptor.
type limit struct {
	name      string
	replaces  []string
	unlimited bool
	rate
	written *written // nil if the limit is wrong or unlimited
}

// A rate is count requests in times units.
type rate struct {
	count int64
	unit  string
	times int64
}

// written is a rate as the text of a limit, and of one that counts as that service does.
type written struct{ text, windows string }

// unitSeconds are the lengths of units in that service.
var unitSeconds = map[string]int64{
	"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400, "month": 30 * 86400, "year": 365 * 86400,
}

// The fields of a configuration.
var (
	domainFields     = []string{"domain", "descriptors", "name"} // the name of a RateLimitConfig says nothing
	descriptorFields = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata"}
	limitFields      = []string{"name", "replaces", "unit", "requests_per_unit", "unlimited", "unit_multiplier"}
)

// mostEntries is how many entries a descriptor of a request may have. mostFree is how many
// of them may have any value, since a rule's key has so many attributes at most.
const (
	mostEntries = 64
	mostFree    = 16
)

// Decode reads one file from its tree. The error is [rulesfile.Errors]. If all errors are
// of descriptors, it returns the domain too, and [Domain.Keep] removes what is wrong.
func Decode(file string, root *rulesfile.Node) (*Domain, error) {
	c := &checker{file: file}
	d := &Domain{}
	c.fields(root, "", domainFields, func(name string, n *rulesfile.Node) {
		switch name {
		case "domain":
			if d.Name = c.text(n, name); !c.asked(n, name, d.Name) {
				d.Name = ""
			}
		case "descriptors":
			d.descriptors = c.descriptors(n, name)
		}
	})
	return c.whole(d, root)
}

// whole returns a domain that was read from n, and the errors in it.
func (c *checker) whole(d *Domain, n *rulesfile.Node) (*Domain, error) {
	if d.Name == "" && len(c.errs) == 0 {
		c.fail(n, "", "no domain", "write domain: and its name")
	}
	if d.Faulty = len(c.errs) > 0; d.Faulty {
		return d, c.errs
	}
	return d, nil
}

// Keep makes a faulty domain usable: it replaces what is wrong by what before, an earlier
// version of the domain or nil, has in its place, or removes it. With it goes a descriptor that
// before has not, if others would take its values: these keep the limits that they have. It
// returns what was wrong.
func (d *Domain) Keep(before *Domain) (wrong []string) {
	if !d.Faulty {
		return nil
	}
	var was []*descriptor
	if before != nil {
		was = before.descriptors
	}
	d.descriptors = keep(d.descriptors, was, fmt.Sprintf("domain %q", d.Name), &wrong)
	return wrong
}

func keep(level, before []*descriptor, path string, wrong *[]string) (kept []*descriptor) {
	was := make(map[id]*descriptor, len(before))
	for _, d := range before {
		was[d.id()] = d
	}
	wider := widerOf(level)
	for i, d := range level {
		at, old, first := path+", "+d.text(), was[d.id()], len(*wrong)
		if d.wrong != nil {
			*wrong = append(*wrong, at+": "+d.wrong.Reason)
			if old != nil {
				kept = append(kept, old)
				delete(was, d.id()) // of two descriptors with the same id, only one is replaced
			}
			continue
		}
		added := old == nil
		if added {
			old = &descriptor{}
		}
		if d.wrongLimit != nil {
			*wrong = append(*wrong, at+": "+d.wrongLimit.Reason)
			if d.limit = old.limit; d.limit != nil {
				d.shadow, d.quota, d.share = old.shadow, old.quota, old.share
			}
		}
		d.below = keep(d.below, old.below, at, wrong)
		if added && len(*wrong) > first && wider.take(level, i) {
			*wrong = append(*wrong, at+": refused as a whole, since a wider descriptor limits what it would take")
			continue
		}
		if d.wrongLimit == nil || d.limit != nil || len(d.below) > 0 || !added { // one without a limit frees what it takes
			kept = append(kept, d)
		}
	}
	return kept
}

// wider are the indexes of the descriptors on a level that may take values of others of their key.
type wider map[string][]int

func widerOf(level []*descriptor) wider {
	w := wider{}
	for i, d := range level {
		if d.value == "" || d.star() {
			w[d.key] = append(w[d.key], i)
		}
	}
	return w
}

// take reports whether others may take values of level[i] if it is gone.
func (w wider) take(level []*descriptor, i int) bool {
	d := level[i]
	return d.value != "" && slices.ContainsFunc(w[d.key], func(k int) bool {
		other := level[k]
		return other.value == "" || k > i && d.star() && other.meets(d) || !d.star() && other.takes(d.value)
	})
}

// Merge adds the descriptors of another file to the domain. The order of files counts,
// since the first wildcard that matches a value takes it. Descriptors that both files have
// are wrong, for [Domain.Keep], if apart is true; else one is the error, and nothing is added.
func (d *Domain) Merge(more *Domain, apart bool) error {
	known := make(map[id]*descriptor, len(d.descriptors))
	for _, one := range d.descriptors {
		known[one.id()] = one
	}
	for _, other := range more.descriptors {
		one := known[other.id()]
		if one == nil {
			continue
		}
		why := fmt.Sprintf("%v: the descriptor %s of domain %q is at %v already", other.at, other.text(), d.Name, one.at)
		if !apart {
			return errors.New(why)
		}
		other.wrong = &rulesfile.Error{Reason: why}
		one.wrong, d.Faulty = other.wrong, true
	}
	d.descriptors, d.Faulty = append(d.descriptors, more.descriptors...), d.Faulty || more.Faulty
	return nil
}

// A checker reads nodes and collects what is wrong.
type checker struct {
	file        string
	errs        rulesfile.Errors
	depth, free int               // entries on the path to the present descriptor, and how many of them take any value
	written     map[rate]*written // nil for a limit that cannot be held
}

func (c *checker) fail(n *rulesfile.Node, path, reason, hint string) {
	c.errs = append(c.errs, &rulesfile.Error{Line: n.Line, Column: n.Column, Path: path, Reason: reason, Hint: hint})
}

// fields calls do for each field of a map. An unknown field is an error, as in that
// service.
func (c *checker) fields(n *rulesfile.Node, path string, known []string, do func(name string, n *rulesfile.Node)) {
	if n.Kind != rulesfile.MapKind {
		c.fail(n, path, fmt.Sprintf("want a map, not %v", n.Kind), "")
		return
	}
	seen := map[string]bool{}
	for _, f := range n.Fields {
		at := &rulesfile.Node{Line: f.Line, Column: f.Column}
		switch {
		case !slices.Contains(known, f.Name):
			c.fail(at, path, fmt.Sprintf("unknown field %q", f.Name), "known are "+strings.Join(known, ", "))
		case seen[f.Name]:
			c.fail(at, path, fmt.Sprintf("field %q twice", f.Name), "")
		case f.Value != nil && f.Value.Kind != rulesfile.Null:
			do(f.Name, f.Value)
		}
		seen[f.Name] = true
	}
}

func under(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// text returns a scalar as written: numbers and booleans are text here.
func (c *checker) text(n *rulesfile.Node, path string) string {
	switch n.Kind {
	case rulesfile.String, rulesfile.Number, rulesfile.Bool:
		return n.Value
	}
	c.fail(n, path, fmt.Sprintf("want text, not %v", n.Kind), "")
	return ""
}

// mostText is how many bytes the domain or a value of a request may have.
const mostText = 8 << 10

// asked reports whether a request can have a text. Requests with other texts are denied.
func (c *checker) asked(n *rulesfile.Node, path, text string) bool {
	switch {
	case len(text) > mostText:
		c.fail(n, path, fmt.Sprintf("%d bytes: a request has at most %d", len(text), mostText), "")
	case text != strings.Trim(text, " \t"):
		c.fail(n, path, fmt.Sprintf("blanks around %.100q: requests with them are denied", text), "write it without them")
	default:
		return true
	}
	return false
}

func (c *checker) flag(n *rulesfile.Node, path string) bool {
	if n.Kind != rulesfile.Bool {
		c.fail(n, path, fmt.Sprintf("want true or false, not %v", n.Kind), "")
	}
	return n.True()
}

func (c *checker) number(n *rulesfile.Node, path string) int64 {
	v, err := strconv.ParseInt(n.Value, 10, 64)
	switch {
	case importers.Octal(n):
		c.fail(n, path, fmt.Sprintf("%s is no decimal number there", n.Value), "write it without the 0 in front")
	case n.Kind != rulesfile.Number || err != nil || v < 0 || v > math.MaxUint32:
		c.fail(n, path, "want a whole number from 0 to 4294967295", "")
	}
	return v
}

func (c *checker) list(n *rulesfile.Node, path string, do func(n *rulesfile.Node, path string)) {
	if n.Kind != rulesfile.List {
		c.fail(n, path, fmt.Sprintf("want a list, not %v", n.Kind), "")
		return
	}
	for i, item := range n.Items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if item == nil || item.Kind == rulesfile.Null {
			c.fail(n, at, "nothing there", "")
			continue
		}
		do(item, at)
	}
}

func (c *checker) descriptors(n *rulesfile.Node, path string) []*descriptor {
	var l level
	c.depth++
	defer func() { c.depth-- }()
	c.list(n, path, func(n *rulesfile.Node, path string) { c.add(&l, c.descriptor(n, path), n, path) })
	return l.all
}

// A level is the descriptors below one parent.
type level struct {
	all   []*descriptor
	known map[id]*descriptor
}

// add adds a descriptor that was read from n.
func (c *checker) add(l *level, d *descriptor, n *rulesfile.Node, path string) {
	if l.all = append(l.all, d); len(l.all) == 1 {
		return
	}
	if l.known == nil {
		l.known = map[id]*descriptor{l.all[0].id(): l.all[0]}
	}
	if other := l.known[d.id()]; other != nil {
		c.fail(n, path, fmt.Sprintf("the descriptor %s twice", d.text()), "one limit for each: rules here may have several")
		d.wrong = c.errs[len(c.errs)-1]
		other.wrong = d.wrong // either may be the one that is meant
	}
	l.known[d.id()] = d
}

// text returns a descriptor for people: key=value.
func (d *descriptor) text() string {
	if d.value == "" {
		return d.key
	}
	return d.key + "=" + d.value
}

func (c *checker) descriptor(n *rulesfile.Node, path string) *descriptor {
	d := &descriptor{at: place{c.file, n.Line}}
	var limit, below *rulesfile.Node
	first := len(c.errs)
	c.fields(n, path, descriptorFields, func(name string, n *rulesfile.Node) {
		at := under(path, name)
		switch name {
		case "key":
			d.key = c.text(n, at)
		case "value":
			d.value = c.text(n, at)
			c.asked(n, at, d.value)
		case "rate_limit":
			limit = n
		case "descriptors":
			below = n
		case "shadow_mode":
			d.shadow = c.flag(n, at)
		case "quota_mode":
			d.quota = c.flag(n, at)
		case "share_threshold":
			d.share = c.flag(n, at)
		case "metadata": // anything may stand in it
			d.dropped = append(d.dropped, dropped{name, place{c.file, n.Line}})
		default:
			if c.flag(n, at) {
				d.dropped = append(d.dropped, dropped{name, place{c.file, n.Line}})
			}
		}
	})
	if !c.good(d, n, path, first) {
		return d
	}
	if d.free() {
		c.free++
		defer func() { c.free-- }()
	}
	if limit != nil {
		d.limit = c.limit(limit, under(path, "rate_limit"))
		d.wrongLimit = c.since(first)
	}
	if below != nil {
		d.below = c.descriptors(below, under(path, "descriptors"))
	}
	return d
}

// good reports whether a descriptor that was read from n can be used. Its errors are those
// from the index first on.
func (c *checker) good(d *descriptor, n *rulesfile.Node, path string, first int) bool {
	switch {
	case d.key == "":
		c.fail(n, path, "no key", "a descriptor without a key matches nothing")
	case d.share && !d.star():
		c.fail(n, path, "share_threshold without a star in the value", "")
	case c.depth > mostEntries:
		c.fail(n, path, fmt.Sprintf("below %d others: no request has as many entries", mostEntries), "")
	}
	d.wrong = c.since(first)
	return d.wrong == nil
}

// since returns the error at an index, nil if there are no more errors.
func (c *checker) since(first int) *rulesfile.Error {
	if len(c.errs) == first {
		return nil
	}
	return c.errs[first]
}

// free reports whether each value has a counter of its own.
func (d *descriptor) free() bool { return d.value == "" || d.star() && !d.share }

func (c *checker) limit(n *rulesfile.Node, path string) *limit {
	l := &limit{rate: rate{times: 1}}
	hasUnit := false
	c.fields(n, path, limitFields, func(name string, n *rulesfile.Node) {
		at := under(path, name)
		hasUnit = hasUnit || name == "unit"
		switch name {
		case "name":
			l.name = c.text(n, at)
		case "unit":
			l.unit = c.unit(n, at, c.text(n, at))
		case "requests_per_unit":
			l.count = c.number(n, at)
		case "unit_multiplier":
			if l.times = c.number(n, at); l.times == 0 {
				c.fail(n, at, "want at least 1", "")
			}
		case "unlimited":
			l.unlimited = c.flag(n, at)
		case "replaces":
			l.replaces = c.replaced(n, at)
		}
	})
	c.rate(l, hasUnit, n, path)
	return l
}

const knownUnits = "known are second, minute, hour, day, week, month, year"

// unit returns a unit in lower case.
func (c *checker) unit(n *rulesfile.Node, path, text string) string {
	text = strings.ToLower(text)
	if unitSeconds[text] == 0 {
		c.fail(n, path, fmt.Sprintf("unknown unit %q", text), knownUnits)
	}
	return text
}

// rate sets l.written, if stint can hold the limit, which was read from n.
func (c *checker) rate(l *limit, hasUnit bool, n *rulesfile.Node, path string) {
	switch {
	case l.unlimited && hasUnit:
		c.fail(n, path, "unlimited beside a unit", "write one or the other")
	case !l.unlimited && !hasUnit:
		c.fail(n, path, "no unit", knownUnits)
	case l.name != "" && slices.Contains(l.replaces, l.name):
		c.fail(n, path, fmt.Sprintf("%q replaces itself", l.name), "")
	case c.free > mostFree:
		c.fail(n, path, fmt.Sprintf("%d entries of any value: a rule counts by %d attributes at most", c.free, mostFree), "")
	case !l.unlimited && unitSeconds[l.unit] > 0:
		if l.written = c.written[l.rate]; l.written != nil {
			return
		}
		w := &written{text: l.rate.text()}
		w.windows = w.text + compatible
		if _, err := stint.Parse(w.windows); err != nil {
			c.fail(n, path, err.Error(), "")
			return
		}
		if c.written == nil {
			c.written = map[rate]*written{}
		}
		c.written[l.rate], l.written = w, w
	}
}

// compatible are the options of a limit that counts as that service does.
const compatible = " fixed_window count_denied"

// text returns the rate as the text of a limit. A count of 0 becomes 1.
func (l *rate) text() string {
	length := fmt.Sprintf("%ds", l.times*unitSeconds[l.unit])
	if unit := map[string]string{"minute": "m", "hour": "h", "day": "d", "week": "w"}[l.unit]; unit != "" {
		length = fmt.Sprintf("%d%s", l.times, unit)
	} else if l.unit == "month" || l.unit == "year" {
		length = fmt.Sprintf("%dd", l.times*unitSeconds[l.unit]/86400)
	}
	return fmt.Sprintf("%d/%s", max(l.count, 1), length)
}

// replaced reads a list of names.
func (c *checker) replaced(n *rulesfile.Node, path string) (names []string) {
	c.list(n, path, func(n *rulesfile.Node, path string) {
		name := ""
		c.fields(n, path, []string{"name"}, func(_ string, n *rulesfile.Node) { name = c.text(n, under(path, "name")) })
		if name == "" {
			c.fail(n, path, "no name", "name the limit that is replaced")
		}
		names = append(names, name)
	})
	return names
}
