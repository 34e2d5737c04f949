package httplimit

import (
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ratefields"
)

// Where a guard stands around another, both write into one header. The policies of all are
// listed. Only one limit says where the client stands: the one that denies, else the one with
// the least remaining, of equal ones the outermost.

// A mark is the name of a guard that has decided about a request. A guard must know its own
// fields from those of other guards. So a mark stands in the capacity of the slice behind the
// value of a field: no reader of the header sees it, and it costs nothing. "" is no mark.
type mark string

var guards atomic.Uint64

func newMark() mark { return mark("\x00" + strconv.FormatUint(guards.Add(1), 10)) }

func marked(value string, m mark) []string { return []string{value, string(m)}[:1] }

func (m mark) in(values []string) bool {
	return m != "" && slices.Contains(values[len(values):cap(values)], string(m))
}

// standings are the fields that say what remains. The first one carries the marks.
var standings = [dialects][]string{
	Draft11:    {fieldRateLimit},
	Draft06:    {fieldRemaining, fieldLimit, fieldReset},
	XRateLimit: {fieldXRemaining, fieldXLimit, fieldXReset},
}

func (d Dialect) standing() string {
	if d == NoFields {
		return ""
	}
	return standings[d][0]
}

// join sets the fields of a decision where an outer guard has set its own. The marks are then
// followed by what each guard has said, so that one can say something else when the response
// has settled its cost. Nothing changes what a guard said that has denied.
func (d Dialect) join(h http.Header, l *ratefields.Limit, policy []string, of *stint.Decision, m mark) {
	said := d.items(h)
	switch {
	case d == XRateLimit:
	case m.in(h[d.standing()]): // the policy is listed already
		policy = h[fieldPolicy]
	default:
		policy = ratefields.One(strings.Join(append(slices.Clip(h[fieldPolicy]), policy...), ", "))
	}
	if d.write(h, l, policy, of, m); of.Allowed {
		d.show(h, append(said, item{m, d.shown(h)}))
	}
}

// again writes the fields anew for a guard with the mark m, after a settlement. was is what
// they said when this guard had decided. Fields that somebody else has replaced meanwhile stay.
func (d Dialect) again(h http.Header, was [3]string, l *ratefields.Limit, of *stint.Decision, m mark) {
	now := h[d.standing()]
	if !m.in(now) {
		d.replace(h, was, l, of)
		return
	}
	said := d.items(h)
	d.write(h, l, h[fieldPolicy], of, m)
	if len(said) == 1 {
		return
	}
	at, own := slices.IndexFunc(said, func(i item) bool { return i.of == m }), item{m, d.shown(h)}
	said = slices.DeleteFunc(said, func(i item) bool { return i.of == m }) // several, if the guard met the request twice
	d.show(h, slices.Insert(said, at, own))
}

// replace is again where a server behind has added fields of its own to those of a single guard.
func (d Dialect) replace(h http.Header, was [3]string, l *ratefields.Limit, of *stint.Decision) {
	now := h[d.standing()]
	if was[0] == "" || len(now) == 0 || len(now) < cap(now) || h[fieldRetryAfter] != nil {
		return
	}
	fresh := make(http.Header)
	d.write(fresh, l, nil, of, "")
	for i, name := range standings[d] {
		lines := h[name]
		rest, ours := strings.CutPrefix(first(lines), was[i])
		if ours = ours && (rest == "" || rest[0] == ','); ours {
			h[name] = append([]string{fresh[name][0] + rest}, lines[1:]...)
		} else if i == 0 {
			return
		}
	}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// says returns the fields that say what remains.
func (d Dialect) says(h http.Header) (said [3]string) {
	if d != NoFields {
		for i, name := range standings[d] {
			said[i] = first(h[name])
		}
	}
	return said
}

// itemEnds stands between the values of an item.
const itemEnds = "\n"

// An item is what one guard has said: the values of the fields.
type item struct {
	of   mark
	text string
}

func (d Dialect) shown(h http.Header) string {
	said := d.says(h)
	return strings.Join(said[:len(standings[d])], itemEnds)
}

// items returns what each guard has said, the outermost first.
func (d Dialect) items(h http.Header) (all []item) {
	was := h[d.standing()]
	switch behind := was[len(was):cap(was)]; {
	case len(behind) == 0:
		all = append(all, item{"", d.shown(h)})
	case len(behind) == 1:
		all = append(all, item{mark(behind[0]), d.shown(h)})
	default:
		for i := 0; i+1 < len(behind); i += 2 {
			all = append(all, item{mark(behind[i]), behind[i+1]})
		}
	}
	return all
}

// show sets the fields to what the guard with the least remaining has said.
func (d Dialect) show(h http.Header, all []item) {
	least, behind := 0, make([]string, 1, 1+2*len(all))
	for i, one := range all {
		if d.remaining(one.text) < d.remaining(all[least].text) {
			least = i
		}
		behind = append(behind, string(one.of), one.text)
	}
	texts := []string{all[least].text}
	if d != Draft11 {
		texts = strings.Split(all[least].text, itemEnds)
	}
	for i, name := range standings[d] {
		h[name] = ratefields.One(texts[i])
	}
	behind[0] = texts[0]
	h[d.standing()] = behind[:1]
}

// remaining reads what remains from what a guard has said; without it, everything does.
func (d Dialect) remaining(said string) int64 {
	if d == Draft11 {
		_, said, _ = strings.Cut(said[max(strings.LastIndex(said, ";r="), 0):], ";r=")
		said, _, _ = strings.Cut(said, ";")
	}
	said, _, _ = strings.Cut(said, itemEnds)
	if left, err := strconv.ParseInt(said, 10, 64); err == nil {
		return left
	}
	return math.MaxInt64
}

// A once warns, the first time only, that a guard meets a request twice.
type once struct{ sync.Once }

func (o *once) warn(r *http.Request) {
	o.Do(func() {
		slog.WarnContext(r.Context(), "httplimit: a guard stands twice around one handler: each request counts twice", "path", r.URL.Path)
	})
}
