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

// joined returns a value with the marks that were behind the old one, and m, each once.
func joined(value string, was []string, m mark) []string {
	all := append([]string{value}, was[len(was):cap(was)]...)
	if !m.in(was) {
		all = append(all, string(m))
	}
	return all[:1:len(all)]
}

// standings are the fields that say what remains; they carry the marks.
var standings = [dialects]string{Draft11: fieldRateLimit, Draft06: fieldRemaining, XRateLimit: fieldXRemaining}

func (d Dialect) standing() string { return standings[d] }

// join sets the fields of a decision where an outer guard has set its own.
func (d Dialect) join(h http.Header, l *ratefields.Limit, policy []string, of *stint.Decision, m mark) {
	was := h[d.standing()]
	switch {
	case d == XRateLimit:
	case m.in(was): // the policy is listed already
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

// A once warns, the first time only, that a guard meets a request twice.
type once struct{ sync.Once }

func (o *once) warn(r *http.Request) {
	o.Do(func() {
		slog.WarnContext(r.Context(), "httplimit: a guard stands twice around one handler: each request counts twice", "path", r.URL.Path)
	})
}
