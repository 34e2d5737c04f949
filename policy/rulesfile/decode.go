package rulesfile

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/wording"
)

// Decode reads rules from a tree, whatever syntax it was written in. It passes over the
// fields at the top that also names, which belong to the caller. The error is [Errors].
func Decode(root *Node, also ...string) (*File, error) {
	d := &decoder{names: make(map[string]*Node), lists: make(map[listFor]match.Condition)}
	file := d.document(root, also)
	if len(d.errs) > 0 {
		slices.SortStableFunc(d.errs, func(a, b *Error) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
		return nil, d.errs
	}
	return file, nil
}

// These bounds are far above what people write. They bound what deciding about one request
// may cost.
const (
	maxErrors = 100
	maxRules  = 100_000
	maxName   = 64 // bytes; names are labels of metrics and in header fields
	maxLimits = 16 // of one plan
	maxKey    = 16 // attributes of one key
)

// The fields that a rules file may have; schema.json has the same.
var (
	documentFields = []string{"rules", "attributes", "jwt", "ignore_path_case", "denied", "cors"}
	ruleFields     = []string{
		"name", "description", "match", "unless", "key", "tag", "limits", "cost", "overrides", "tiers",
		"unlimited", "block", "count", "on_missing", "on_store_failure", "mode", "wait", "finish", "shadow", "final",
		"ipv4_prefix", "ipv6_prefix", "hash_key", "denied", "cors", "fields",
	}
	limitFields    = []string{"limit", "name"}
	costFields     = []string{"attribute", "header", "times", "sent", "default", "min", "max", "price", "response", "usage", "reserve", "missing", "cut", "ask_usage"}
	priceFields    = []string{"by", "models", "default"}
	countFields    = []string{"status"}
	overrideFields = []string{"name", "when", "limits", "unlimited", "block"}
	tiersFields    = []string{"by", "default", "plans"}
	planFields     = []string{"limits", "unlimited", "block"}
	deniedFields   = []string{"status", "headers", "body", "type"}
	jwtFields      = []string{"header", "jwks", "issuer", "audience", "algorithms"}
)

// ofRequest is how many of costFields, from the first, are about the request; the first
// ofReserve of them may also stand in reserve.
const (
	ofRequest = 8
	ofReserve = 7
)

// A decoder turns nodes into rules and collects what is wrong.
type decoder struct {
	errs      Errors
	more      bool // there are more than maxErrors errors
	nodes     int
	foldPath  bool             // ignore_path_case
	reply     Reply            // of rules that have none of their own
	names     map[string]*Node // of rules
	overrides map[string]bool  // names of overrides of the rule at hand
	texts     map[string]string
	limitsOf  map[string]stint.Limit // by text: many rules have the same
	uses      map[string]use         // by the name of the attribute
	lists     map[listFor]match.Condition
}

// A listFor is a list of values that an attribute is compared with.
type listFor struct {
	list      *Node
	attribute string
}

// intern returns one text for equal texts, since thousands of rules have the same few. It
// keeps up to 10,000.
func (d *decoder) intern(s string) string {
	if known, ok := d.texts[s]; ok {
		return known
	}
	if d.texts == nil {
		d.texts = make(map[string]string)
	}
	if len(d.texts) < 10_000 {
		d.texts[s] = s
	}
	return s
}

// A trail is the path to a node in the tree, for errors.
type trail struct {
	up    *trail
	field string // of a map; "" for an item of a list
	item  int
}

func (t *trail) in(field string) *trail { return &trail{t, field, 0} }
func (t *trail) at(item int) *trail     { return &trail{t, "", item} }

func (t *trail) String() string {
	switch {
	case t == nil:
		return ""
	case t.field == "":
		return fmt.Sprintf("%s[%d]", t.up, t.item)
	case t.up == nil:
		return wording.Shorten(t.field)
	}
	return t.up.String() + "." + wording.Shorten(t.field)
}

func (d *decoder) fail(n *Node, t *trail, hint, format string, args ...any) {
	d.failAt(n.Line, n.Column, t, hint, format, args...)
}

func (d *decoder) failAt(line, column int, t *trail, hint, format string, args ...any) {
	if len(d.errs) >= maxErrors {
		if !d.more {
			d.more = true
			d.errs = append(d.errs, &Error{Line: line, Column: column, Reason: "more errors follow"})
		}
		return
	}
	d.errs = append(d.errs, &Error{line, column, t.String(), wording.Sprintf(format, args...), hint})
}

// visit counts the values, so that a small file of aliases cannot become a large tree.
func (d *decoder) visit(n *Node, t *trail) bool {
	if d.nodes++; d.nodes == maxNodes+1 {
		d.fail(n, t, "aliases count each time they are used", "more than %d values", maxNodes)
	}
	return d.nodes <= maxNodes
}

func (d *decoder) want(n *Node, t *trail, kind Kind, hint string) bool {
	if !d.visit(n, t) {
		return false
	}
	if n.Kind != kind {
		d.fail(n, t, hint, "want %v, not %v", kind, n.Kind)
	}
	return n.Kind == kind
}

// fields returns the fields of a map that are known and have a value, each once, and reports
// the others as errors.
func (d *decoder) fields(n *Node, t *trail, hint string, known ...string) []Field {
	if !d.want(n, t, MapKind, hint) {
		return nil
	}
	seen := make(map[string]int, len(n.Fields))
	var good []Field
	for _, f := range n.Fields {
		line, twice := seen[f.Name]
		switch {
		case twice:
			d.failAt(f.Line, f.Column, t, "", "field %q twice: it is in line %d already", f.Name, line)
		case len(known) > 0 && !slices.Contains(known, f.Name):
			d.failAt(f.Line, f.Column, t, suggest(f.Name, known), "unknown field %q", f.Name)
		case f.Value == nil:
			d.failAt(f.Line, f.Column, t.in(f.Name), "", "no value")
		default:
			good = append(good, f)
		}
		if !twice {
			seen[f.Name] = f.Line
		}
	}
	return good
}

// mostTypos is one more than how many letters of a word may be wrong if it is to count as a
// known one.
func mostTypos(word string) int {
	if len(word) >= 12 {
		return 4 // trusted_proxy
	}
	return min(3, max(len(word)/2, min(2, len(word)-1)))
}

// suggest returns a hint: the known word that is like the one written, or all known words.
func suggest(word string, known []string) string {
	if best := wording.Nearest(strings.ToLower(word), slices.Values(known), mostTypos(word)); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	if len(known) == 0 {
		return ""
	}
	return "known are " + strings.Join(known, ", ")
}

func (d *decoder) text(n *Node, t *trail, hint string) (string, bool) {
	if !d.want(n, t, String, hint) {
		return "", false
	}
	return n.Value, true
}

func (d *decoder) boolean(n *Node, t *trail) bool {
	return d.want(n, t, Bool, "") && n.True()
}

func (d *decoder) number(n *Node, t *trail, least, most int64) int64 {
	if !d.want(n, t, Number, "") {
		return least
	}
	v, ok := ParseDigits(strings.ReplaceAll(n.Value, "_", ""))
	if !ok || v < least || v > most {
		d.fail(n, t, "", "want a whole number from %d to %d, not %s", least, most, n.Value)
		return least
	}
	return v
}

func (d *decoder) duration(n *Node, t *trail) time.Duration {
	const hint = "a duration from 1ms to 1h, such as 10s"
	s, ok := d.text(n, t, hint)
	if !ok {
		return 0
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < time.Millisecond || v > time.Hour {
		d.fail(n, t, hint, "%q is no time to wait", wording.Shorten(s))
		return 0
	}
	return v
}

// list returns the items of a list; any other value counts as a list of one.
func (d *decoder) list(n *Node, t *trail) []*Node {
	if n.Kind != List {
		return []*Node{n}
	}
	if !d.visit(n, t) {
		return nil
	}
	return n.Items
}

func (d *decoder) each(n *Node, t *trail, do func(n *Node, t *trail)) {
	for i, item := range d.list(n, t) {
		at := t
		if n.Kind == List {
			at = t.at(i)
		}
		if item == nil {
			d.fail(n, at, "", "no value")
			continue
		}
		do(item, at)
	}
}

// word reads one of the known words; for any other it returns the first of them.
func (d *decoder) word(n *Node, t *trail, known ...string) string {
	s, ok := d.text(n, t, "one of "+strings.Join(known, ", "))
	if ok && !slices.Contains(known, s) {
		d.fail(n, t, suggest(s, known), "unknown word %q", s)
		return known[0]
	}
	return s
}

// name reads a name, which becomes a label of metrics and a word in header
// fields.
func (d *decoder) name(n *Node, t *trail) string {
	const hint = "letters, digits, dots, underscores and hyphens, at most 64"
	s, ok := d.text(n, t, hint)
	if ok && !goodName(s) {
		d.fail(n, t, hint, "%q is no name", wording.Shorten(s))
		return ""
	}
	return s
}

func goodName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
		if !letter && (i == 0 || c != '-' && c != '.') {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

func (d *decoder) document(root *Node, also []string) *File {
	if root == nil || root.Kind == Null {
		d.failAt(1, 1, nil, `want {"rules": […]}`, "the file is empty")
		return nil
	}
	fields := d.fields(root, nil, `want {"rules": […]}`, append(also[:len(also):len(also)], documentFields...)...)
	for _, f := range fields { // first, since the rules need them, wherever they stand
		at := (*trail)(nil).in(f.Name)
		switch {
		case slices.Contains(also, f.Name):
		case f.Name == "ignore_path_case":
			d.foldPath = d.boolean(f.Value, at)
		default:
			d.replies(&d.reply, f, at)
		}
	}
	file := &File{foldPath: d.foldPath}
	have := false
	for _, f := range fields {
		if f.Name == "attributes" && !slices.Contains(also, f.Name) {
			file.declared = d.declared(f.Value, (*trail)(nil).in(f.Name))
		}
		if f.Name == "jwt" && !slices.Contains(also, f.Name) {
			file.jwt = d.jwt(f.Value, (*trail)(nil).in(f.Name))
		}
		if f.Name != "rules" || slices.Contains(also, "rules") {
			continue
		}
		have = true
		t := (*trail)(nil).in("rules")
		if !d.want(f.Value, t, List, "each rule is an item of the list") {
			continue
		}
		i := -1
		for item := range f.Value.each() {
			if i++; i == maxRules {
				d.fail(f.Value, t, "", "more than %d rules", maxRules)
				break
			}
			if item == nil {
				d.fail(f.Value, t.at(i), "", "no value")
				continue
			}
			file.rules = append(file.rules, d.rule(item, t.at(i)))
			if i%64 == 63 { // so that requests are decided meanwhile
				runtime.Gosched()
			}
		}
	}
	if !have && len(d.errs) == 0 {
		d.fail(root, nil, `want {"rules": […]}; for no rules an empty list`, "no field \"rules\"")
	}
	if len(d.errs) == 0 {
		file.uses = d.inOrder()
		d.tooMany(file.rules)
	}
	return file
}

// tooMany refuses rules that hold every request to more limits than one decision may have.
// Limits that only some requests meet are counted when such a request comes.
func (d *decoder) tooMany(rules []*Rule) {
	limits := 0
	for i, r := range rules {
		if r.Match != nil || r.Unless != nil || r.Shadow || r.OnMissing != "shared" {
			continue
		}
		fewest := maxLimits
		for _, p := range r.plans() {
			fewest = min(fewest, len(p.Limits))
		}
		if limits += fewest; limits > stint.MaxLimits {
			d.failAt(r.Line, r.Column, (*trail)(nil).in("rules").at(i), "a rule that is final, or one with match, spares requests the others",
				"every request is held to %d limits by here: at most %d", limits, stint.MaxLimits)
			return
		}
		if r.Final || r.Own != nil && r.Own.Action != "" {
			return
		}
	}
}
