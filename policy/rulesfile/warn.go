package rulesfile

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/wording"
)

// maxCompared is how many pairs of rules and overrides are compared for warnings, which takes
// about a second in the largest files.
const maxCompared = 2_000_000

// Warnings returns what is allowed, but likely not meant: keys that a client chooses freely,
// rules and overrides that are never reached, costs that can never pass, fields without
// effect.
func (f *File) Warnings() []Warning {
	w := &warner{file: f}
	for _, one := range f.rules {
		_, freely := one.chosen()
		if !freely && !one.Shadow && one.limits() && len(one.Unless) == 0 && (one.OnMissing != "skip" || !one.byClaim()) {
			w.bounded = append(w.bounded, one)
		}
	}
	if len(f.rules) == 0 {
		w.all = append(w.all, Warning{Reason: "there are no rules: every request passes", Hint: "write a rule, or drop the file"})
	}
	w.undeclared()
	for i, one := range f.rules {
		w.freeKey(one)
		w.claimKey(one)
		w.client(one)
		w.impossible(one)
		w.misspelt(one)
		w.script(one)
		w.unreachable(one)
		if i%64 == 63 { // so that requests are decided meanwhile
			runtime.Gosched()
		}
		if (one.IPv4Prefix != 32 || one.IPv6Prefix != 64) && !slices.ContainsFunc(one.Key, func(a request.Attribute) bool { return a.Kind == request.IP }) {
			w.warn(one, "drop it, or put ip into the key", "ipv4_prefix and ipv6_prefix have no effect on a key without ip")
		}
		if one.Shadow && one.Final {
			w.warn(one, "drop one of them", "final has no effect in shadow")
		}
	}
	for _, one := range f.rules { // last, since many overrides use up maxCompared
		w.overrides(one)
	}
	return w.all
}

type warner struct {
	file     *File
	bounded  []*Rule // rules whose keys clients do not choose
	ends     []*Rule // rules before, which end the matching of all their requests
	all      []Warning
	compared int
}

func (w *warner) warn(r *Rule, hint, format string, args ...any) {
	w.sayAt(r, r.Line, r.Column, hint, format, args...)
}

func (w *warner) sayAt(r *Rule, line, column int, hint, format string, args ...any) {
	w.all = append(w.all, Warning{line, column, r.Name, fmt.Sprintf(format, args...), hint})
}

// chosen returns an attribute of the rule's key that a client chooses freely: no condition
// lists its values.
func (r *Rule) chosen() (request.Attribute, bool) {
	for _, a := range r.Key {
		if a.Free() && !r.pinned(a) {
			return a, true
		}
	}
	return request.Attribute{}, false
}

// pinned reports whether every alternative of match lists the values that a may have.
func (r *Rule) pinned(a request.Attribute) bool {
	for _, conj := range r.Match {
		if !slices.ContainsFunc(conj, func(c match.Condition) bool { return c.Name == a.Name && c.Pinned() }) {
			return false
		}
	}
	return len(r.Match) > 0
}

func (w *warner) freeKey(r *Rule) {
	a, free := r.chosen()
	if !free || !r.limits() {
		return
	}
	for _, o := range w.bounded {
		if w.compared >= maxCompared || w.covers(o.Match, r.Match) {
			return
		}
	}
	w.warn(r, "add a rule for the same requests with key: [ip]",
		"a client can have as many keys as it sends values of %s, and no other rule holds it by address", a.Name)
}

func (r *Rule) byClaim() bool {
	return slices.ContainsFunc(r.Key, func(a request.Attribute) bool { return a.Kind == request.Claim })
}

// claimKey warns of a key by a claim, which clients without a token that verifies do not
// have.
func (w *warner) claimKey(r *Rule) {
	if w.file.jwt == nil || !r.byClaim() || !r.limits() {
		return
	}
	switch r.OnMissing {
	case "skip":
		w.warn(r, "on_missing: shared, or deny", "it holds no client that sends no token, or one that does not verify")
	case "shared":
		for _, o := range w.bounded {
			byAddress := slices.ContainsFunc(o.Key, func(a request.Attribute) bool { return a.Kind == request.IP })
			if w.compared >= maxCompared || byAddress && w.covers(o.Match, r.Match) {
				return
			}
		}
		w.warn(r, "add a rule for the same requests with key: [ip], or say on_missing: deny",
			"all who send no token that verifies share one key, and no other rule holds them by address: one client can use it up")
	}
}

// limits reports whether the rule ever sets limits.
func (r *Rule) limits() bool {
	return slices.ContainsFunc(r.plans(), func(p *Plan) bool { return p.Action == "" })
}

// client warns of costs, budgets and tiers that a client can choose in its own favour.
func (w *warner) client(r *Rule) {
	if r.Cost.Fixed == 0 && r.Cost.Min < 1 && !slices.ContainsFunc(r.Cost.By, func(a request.Attribute) bool { return !a.Free() }) {
		w.warn(r, "drop min: 0 unless a proxy sets it", "a client that says %s: 0 pays nothing", r.Cost.By[0].Name)
	}
	w.budget(r)
	if r.Tiers != nil && r.Tiers.By.Free() {
		w.warn(r, "use an attribute that your program has verified", "a client chooses its tier by %s", r.Tiers.By.Name)
	}
	for _, o := range r.Overrides {
		if by, ok := r.claimedBy(o.When); ok && o.Plan.Action == "unlimited" {
			w.warn(r, "use an attribute that your program has verified", "a client that sends %s has no limit", by)
		}
	}
	for _, conj := range r.Unless {
		if by, ok := r.claimedBy(conj); ok {
			w.warn(r, "use an attribute that your program has verified", "a client that sends %s leaves the rule", by)
		}
	}
}

// claimedBy returns an attribute by whose value a client meets conditions as it likes. The value of the
// rule's own key, such as an API key, is taken for a secret.
func (r *Rule) claimedBy(conj match.Conjunction) (name string, ok bool) {
	for _, c := range conj {
		switch {
		case c.Absent || c.Kind == request.Path || c.Kind == request.Method || c.Kind == request.Host:
		case !c.Free(), slices.ContainsFunc(r.Key, func(a request.Attribute) bool { return a.Name == c.Name }):
			return "", false
		default:
			name, ok = c.Name, true
		}
	}
	return name, ok
}

// budget warns of a budget whose size a client chooses by what it writes into the body. A
// rule by address beside it does not help: that bounds requests, not what they cost.
func (w *warner) budget(r *Rule) {
	if r.Response == nil || r.Response.Truth() == "" {
		return
	}
	const hint = "list the values in match, and block others by a rule behind it"
	price := r.Cost.Price
	for _, a := range r.Key {
		if closed := price != nil && price.By == a && price.Default == 0; a.Kind == request.Body && !r.pinned(a) && !closed {
			w.warn(r, hint, "a client has another budget for each value of %s that it writes: ten by ten made-up ones", a.Name)
		}
	}
	if price == nil || price.Default == 0 || !price.By.Free() || r.pinned(price.By) {
		return
	}
	for _, name := range price.Names {
		if price.Models[name] > price.Default {
			w.warn(r, "drop default, so that others are refused, or "+hint,
				"a client that writes another name of %s in %s, as servers know several, pays %d in place of %d", wording.Shorten(name), price.By.Name, price.Default, price.Models[name])
			return
		}
	}
}

// script warns of a path of a script, which many servers also run for longer paths.
func (w *warner) script(r *Rule) {
	if r.Own != nil && r.Own.Action == "unlimited" {
		return
	}
	for _, conj := range r.Match {
		for i := range conj {
			if path := conj[i].Script(); path != "" {
				w.warn(r, "write "+path+"/** if the server does so", "%s/x, which many servers hand to %s too, does not match", path, path)
				return
			}
		}
	}
}

// misspelt warns of conditions that no request is likely to meet: a pattern or a list as other programs
// write it, a method that is not registered.
func (w *warner) misspelt(r *Rule) {
	for _, conj := range slices.Concat(r.Match, r.Unless) {
		for _, c := range conj {
			for _, text := range c.Texts {
				switch method := strings.ToUpper(text); {
				case c.Kind == request.Path:
					w.foreignPath(r, text)
				case c.Kind == request.Method && !slices.Contains(methods, method) && !strings.Contains(method, "*"):
					hint := "for any method leave method out; if your server knows it, all is well"
					if meant := wording.Nearest(method, slices.Values(methods[:9]), 2); meant != "" {
						hint = "did you mean " + meant + "?"
					}
					w.warn(r, hint, "%s is no method of HTTP", wording.Shorten(method))
				case (c.Kind == request.Header || c.Kind == request.Query || c.Kind == request.Cookie) && foreignValue.MatchString(text):
					w.warn(r, "write [a, b] for a list, * for any text, and unless for what is excepted", "%s %s: it is plain text here", c.Name, wording.Shorten(text))
				}
			}
		}
	}
}

// methods are those of HTTP, then the others that IANA has registered, and PURGE, which caches know.
var methods = strings.Fields(`CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT TRACE
	ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT COPY LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF
	MKWORKSPACE MOVE ORDERPATCH PRI PROPFIND PROPPATCH QUERY REBIND REPORT SEARCH UNBIND UNCHECKOUT UNLINK UNLOCK
	UPDATE UPDATEREDIRECTREF VERSION-CONTROL PURGE`)

var (
	foreignPaths = regexp.MustCompile(`[|^$\[]|[ ,]/|\(.*\)|/\.\*`)
	foreignValue = regexp.MustCompile(`^\w+([|,]\w+)+$|^!|^/.+/[gimsux]{0,2}$|^\^|\$$|\.\*$`)
)

// foreignPath warns of a path with a wildcard as other programs write it, a regular expression, or a list.
func (w *warner) foreignPath(r *Rule, text string) {
	if foreignPaths.MatchString(text) {
		w.warn(r, "write [/a, /b] for a list, * within a segment, ** for any segments", "path %s: it is plain text here", wording.Shorten(text))
		return
	}
	for segment := range strings.SplitSeq(text, "/") {
		name := strings.Trim(segment, ":<>*")
		switch name = name[strings.LastIndexByte(name, ':')+1:]; { // of <int:id>
		case name == "":
		case strings.Contains(name, ",") && segment[0] == '{' && strings.HasSuffix(segment, "}"):
			w.warn(r, "write [/a, /b] for a list", "path %s: %q is any one segment here", wording.Shorten(text), wording.Shorten(segment))
		case segment[0] == ':' || segment[0] == '<':
			w.warn(r, "for any one segment write {"+name+"}", "path %s: %q is plain text here", wording.Shorten(text), wording.Shorten(segment))
		case segment == "*"+name && strings.HasSuffix(text, segment) && !strings.ContainsAny(name, "*.-_"):
			w.warn(r, "for any segments write **", "path %s: %q is one segment that ends so", wording.Shorten(text), wording.Shorten(segment))
		}
	}
}

// impossible warns of costs above what a limit ever lets through.
func (w *warner) impossible(r *Rule) {
	least := r.Cost.Fixed
	if least == 0 {
		least = min(r.Cost.Min, r.Cost.Default)
	}
	said := make(map[stint.Limit]bool) // thousands of overrides may have the same limits
	for _, p := range r.plans() {
		for _, l := range p.Limits {
			if !l.InFlight() && least > l.Capacity() && !said[l] {
				said[l] = true
				w.warn(r, "", "a request costs %d and %s lets through %d at most: none can ever pass", least, l, l.Capacity())
			}
		}
	}
}

// unreachable warns of a rule whose requests all end at an earlier one.
func (w *warner) unreachable(r *Rule) {
	if len(r.Unless) > 0 && (len(r.Match) > 0 && w.covers(r.Unless, r.Match) || slices.ContainsFunc(r.Unless, isAll)) {
		w.warn(r, "narrow unless", "never reached: unless excepts all that match lets in")
	}
	if r.alwaysEnds() {
		defer func() { w.ends = append(w.ends, r) }()
	}
	for _, o := range w.ends {
		if w.compared >= maxCompared {
			return
		}
		if w.covers(o.Match, r.Match) {
			w.warn(r, "put it first, or narrow the other", "never reached: rule %s ends the matching for all its requests", o.Name)
			return
		}
	}
}

// isAll reports whether every request meets conditions, as far as their text says.
func isAll(conj match.Conjunction) bool {
	return !slices.ContainsFunc(conj, func(c match.Condition) bool {
		return !(c.Kind == request.Path && slices.Contains(c.Texts, "/**") || c.Kind == request.Method && slices.Contains(c.Texts, "*"))
	})
}

// alwaysEnds reports whether every request that matches the rule ends its matching here.
func (r *Rule) alwaysEnds() bool {
	switch {
	case r.Shadow || len(r.Unless) > 0:
		return false
	case r.Final:
		return r.OnMissing != "skip" || len(r.Key) == 0
	}
	return r.Own != nil && r.Own.Action != "" && r.Tiers == nil && len(r.Overrides) == 0
}

// overrides warns of overrides that no request reaches.
func (w *warner) overrides(r *Rule) {
	for k := range r.Overrides {
		o := &r.Overrides[k]
		for i := range k {
			if w.compared >= maxCompared {
				return
			}
			if w.covers([]match.Conjunction{r.Overrides[i].When}, []match.Conjunction{o.When}) {
				w.sayAt(r, o.Line, o.Column, "the first that fits is taken: put the narrower first",
					"override by %s is never reached: the one in line %d takes its requests", o.When.Names(), r.Overrides[i].Line)
				break
			}
		}
	}
}

// covers reports whether a surely matches every request that b matches; no conditions match
// all requests.
func (w *warner) covers(a, b []match.Conjunction) bool {
	if w.compared++; len(a) == 0 {
		return true
	}
	for _, narrow := range b {
		if !slices.ContainsFunc(a, func(wide match.Conjunction) bool { return wide.Covers(narrow) }) {
			return false
		}
	}
	return len(b) > 0
}
