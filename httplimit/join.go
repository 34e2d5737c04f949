package httplimit

import (
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ratefields"
)

// Guards around guards answer in one header. Each policy is listed, and where the client
// stands is said of the limit with the least remaining, of equals of the outermost, and of
// the one that denies, if one does.

// A mark is the name of a guard that has decided about a request. It stands in the capacity
// behind the value of a field, where no reader of the header sees it: so a guard knows what
// others wrote from what it wrote itself, at no price for all others. "" is none.
type mark string

var guards atomic.Uint64

// newMark returns a name for a guard, which is the value of no field.
func newMark() mark { return mark("\x00" + strconv.FormatUint(guards.Add(1), 10)) }

// marked returns the value of a field with a mark behind it.
func marked(value string, m mark) []string { return []string{value, string(m)}[:1] }

// in reports whether the values of a field have the mark.
func (m mark) in(values []string) bool {
	return m != "" && slices.Contains(values[len(values):cap(values)], string(m))
}

// joined returns the value of a field with the marks of what was there and another one, each
// once.
func joined(value string, was []string, m mark) []string {
	all := append([]string{value}, was[len(was):cap(was)]...)
	if !m.in(was) {
		all = append(all, string(m))
	}
	return all[:1:len(all)]
}

// standings are the fields that say what remains, behind which marks stand.
var standings = [dialects]string{Draft11: fieldRateLimit, Draft06: fieldRemaining, XRateLimit: fieldXRemaining}

func (d Dialect) standing() string { return standings[d] }

// join sets the fields of a decision beside those of an outer guard.
func (d Dialect) join(h http.Header, l *ratefields.Limit, policy []string, of *stint.Decision, m mark) {
	was := h[d.standing()]
	switch {
	case d == XRateLimit:
	case m.in(was): // it is listed already
		policy = h[fieldPolicy]
	default:
		policy = ratefields.One(strings.Join(append(slices.Clip(h[fieldPolicy]), policy...), ", "))
	}
	left, ok := d.remaining(was[0])
	if !ok || !of.Allowed || of.Remaining < left {
		d.write(h, l, policy, of, m)
		h[d.standing()] = joined(h[d.standing()][0], was, m)
		return
	}
	if d != XRateLimit {
		h[fieldPolicy] = policy
	}
	h[d.standing()] = joined(was[0], was, m)
}

// remaining reads what remains from the value of a field.
func (d Dialect) remaining(value string) (left int64, ok bool) {
	if d == Draft11 {
		at := strings.LastIndex(value, ";r=")
		if at < 0 {
			return 0, false
		}
		value, _, _ = strings.Cut(value[at+len(";r="):], ";")
	}
	left, err := strconv.ParseInt(value, 10, 64)
	return left, err == nil
}

// A once warns of a guard that meets a request twice.
type once struct{ sync.Once }

func (o *once) warn(r *http.Request) {
	o.Do(func() {
		slog.WarnContext(r.Context(), "httplimit: a guard stands twice around one handler: each request counts twice", "path", r.URL.Path)
	})
}
