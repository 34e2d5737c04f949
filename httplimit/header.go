package httplimit

import (
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
)

// A Dialect is the header fields that tell clients where they stand, on
// answers that were allowed and on those that were denied. Retry-After is sent
// with a denial in any dialect.
type Dialect uint8

const (
	// Draft11 is draft-ietf-httpapi-ratelimit-headers-11:
	//
	//	RateLimit-Policy: "login";q=5;w=60
	//	RateLimit: "login";r=4;t=12
	//
	// At most r units pass in the next t seconds, in so far as the limit can
	// tell: a bucket's t is long enough that r/t is never above its pace.
	Draft11 Dialect = iota
	// XRateLimit is X-RateLimit-Limit, X-RateLimit-Remaining and
	// X-RateLimit-Reset, the last as a time in Unix seconds, as GitHub has it.
	XRateLimit
	// Draft06 is RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset (in
	// seconds from now) and RateLimit-Policy, as drafts up to 06 have them.
	Draft06
	// NoFields sends none.
	NoFields

	dialects = iota
)

// The names of fields as [http.Header] keeps them. Header names have no case.
const (
	fieldPolicy     = "Ratelimit-Policy"
	fieldRateLimit  = "Ratelimit"
	fieldLimit      = "Ratelimit-Limit"
	fieldRemaining  = "Ratelimit-Remaining"
	fieldReset      = "Ratelimit-Reset"
	fieldXLimit     = "X-Ratelimit-Limit"
	fieldXRemaining = "X-Ratelimit-Remaining"
	fieldXReset     = "X-Ratelimit-Reset"
	fieldRetryAfter = "Retry-After"
)

// maxInteger is the greatest integer of a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// An encoder writes the fields of one list of limits. It never changes; what
// does not depend on the decision is made once and shared by all answers, in
// slices that an append copies.
type encoder struct {
	dialect Dialect
	policy  []string // RateLimit-Policy, whole
	layers  []layer
}

// A layer is one limit as fields tell it.
type layer struct {
	plain  string   // the name, without what a header may not hold
	name   string   // the name as a structured-field string, which is JSON too
	policy []string // its RateLimit-Policy, if it is the only one
	head   string   // `"name";r=`
	limit  []string // the most that passes at once, as text
	count  int64    // units per period, for buckets; else 0
	period time.Duration
	window time.Duration // the longest that a key takes to be as if never seen
}

// newEncoder returns the encoder of limits under their labels.
func newEncoder(dialect Dialect, labels []string, limits []stint.Limit) *encoder {
	e := &encoder{dialect: dialect}
	var items []string
	for i, l := range limits {
		y := newLayer(dialect, labels[i], l)
		e.layers = append(e.layers, y)
		items = append(items, y.policy...)
	}
	e.policy = one(strings.Join(items, ", "))
	return e
}

// newLayer returns how the fields of a dialect tell of a limit.
func newLayer(dialect Dialect, name string, l stint.Limit) layer {
	y := layer{
		plain: printable(name), window: span(l),
		limit: one(strconv.FormatInt(l.Capacity(), 10)),
	}
	y.name = quote(y.plain)
	y.head = y.name + ";r="
	if k := l.Algorithm(); k == stint.GCRA || k == stint.LeakyQueue || k == stint.TokenBucketInterval {
		y.count, y.period = l.Count(), l.Period()
	}
	q, w := quota(l)
	var policy []byte
	if dialect == Draft11 {
		policy = append(append(policy, y.name...), ";q="...)
	}
	policy = strconv.AppendInt(policy, q, 10)
	policy = strconv.AppendInt(append(policy, ";w="...), w, 10)
	y.policy = one(string(policy))
	return y
}

// one returns a slice of one string that an append copies.
func one(s string) []string { return []string{s}[:1:1] }

// quota returns what a limit allows as a policy says it: q units in a window
// of w whole seconds. It is the capacity, so that what remains is never above
// it, and the time in which that comes back; a limit by the period alone, such
// as 100 per minute, is 100 and 60.
func quota(l stint.Limit) (q, w int64) {
	q, d := l.Capacity(), span(l)
	if d < time.Second { // as many as pass in the shortest window that can be told
		if q = mulDiv(q, int64(time.Second), max(int64(d), 1)); q == 0 {
			q = 1
		}
		d = time.Second
	}
	return min(q, maxInteger), min(ceilSeconds(d), maxInteger)
}

// span returns how long a key's whole capacity takes to come back.
func span(l stint.Limit) time.Duration {
	switch l.Algorithm() {
	case stint.GCRA, stint.LeakyQueue:
		return time.Duration(mulDiv(l.Capacity(), int64(l.Period()), l.Count()))
	case stint.TokenBucketInterval:
		lumps := (l.Capacity()-1)/l.Count() + 1
		return time.Duration(mulDiv(lumps, int64(l.Period()), 1))
	}
	return l.Period()
}

// mulDiv returns a·b/c rounded up, for values that are not negative, or the
// greatest int64.
func mulDiv(a, b, c int64) int64 {
	const most = 1<<63 - 1
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return most
	}
	q, rest := bits.Div64(hi, lo, uint64(c))
	if rest > 0 {
		q++
	}
	return int64(min(q, most))
}

func ceilSeconds(d time.Duration) int64 { return stint.Wait(max(d, 0)).Seconds() }

// set writes the fields of a decision, none where no limit was asked. Price: two
// allocations, for what depends on the decision; none without fields.
func (e *encoder) set(h http.Header, d *stint.Decision) {
	if e.dialect == NoFields || d.Tightest < 0 || d.Tightest >= len(e.layers) {
		return
	}
	e.layers[d.Tightest].set(h, e.dialect, e.policy, d, len(e.layers) == 1)
}

// set writes the fields of a decision whose Remaining is the layer's. alone
// says that its ResetAfter is too, and not that of another layer.
func (y *layer) set(h http.Header, dialect Dialect, policy []string, d *stint.Decision, alone bool) {
	remaining := min(max(d.Remaining, 0), maxInteger)
	wait := d.ResetAfter
	if !alone {
		wait = min(wait, y.window)
	}
	if retry, ok := d.RetryAfter.Duration(); ok && !d.Allowed {
		wait = retry
	}
	switch dialect {
	case Draft11:
		h[fieldPolicy] = policy
		h[fieldRateLimit] = []string{y.rateLimit(d, remaining, wait)}
	case Draft06:
		h[fieldPolicy] = policy
		h[fieldLimit] = y.limit
		h[fieldRemaining], h[fieldReset] = twoInts(remaining, min(ceilSeconds(wait), maxInteger))
	case XRateLimit:
		h[fieldXLimit] = y.limit
		h[fieldXRemaining], h[fieldXReset] = twoInts(remaining, ceilUnix(time.Now(), wait))
	}
}

// ceilUnix returns the Unix second that begins no earlier than wait from now.
func ceilUnix(now time.Time, wait time.Duration) int64 {
	s := now.Unix() + int64(wait/time.Second)
	rest := int64(now.Nanosecond()) + int64(wait%time.Second)
	return s + ceilSeconds(time.Duration(rest))
}

// rateLimit returns the value of RateLimit.
func (y *layer) rateLimit(d *stint.Decision, remaining int64, wait time.Duration) string {
	if y.count > 0 && (d.Allowed || d.RetryAfter == stint.Never) {
		wait = max(wait, time.Duration(mulDiv(remaining, int64(y.period), y.count)))
	}
	var buf [128]byte
	b := append(buf[:0], y.head...)
	b = strconv.AppendInt(b, remaining, 10)
	b = append(b, ";t="...)
	b = strconv.AppendInt(b, min(max(ceilSeconds(wait), 1), maxInteger), 10)
	return string(b)
}

// twoInts returns two numbers as the values of two fields, in two allocations.
func twoInts(a, b int64) (as, bs []string) {
	var buf [48]byte
	text := strconv.AppendInt(buf[:0], a, 10)
	cut := len(text)
	text = strconv.AppendInt(text, b, 10)
	both := string(text)
	values := []string{both[:cut], both[cut:]}
	return values[:1:1], values[1:]
}

// printable returns a name with those bytes percent-encoded that no header may
// hold, such as line breaks and letters beyond ASCII.
func printable(name string) string {
	const hex = "0123456789ABCDEF"
	var b []byte
	for i, c := range []byte(name) {
		switch bad := c < ' ' || c > '~'; {
		case bad && b == nil:
			b = append(append(make([]byte, 0, len(name)+8), name[:i]...), '%', hex[c>>4], hex[c&15])
		case bad:
			b = append(b, '%', hex[c>>4], hex[c&15])
		case b != nil:
			b = append(b, c)
		}
	}
	if b == nil {
		return name
	}
	return string(b)
}

// quote returns printable text as a structured-field string (RFC 9651, 3.3.3),
// which is a JSON string as well.
func quote(text string) string {
	b := append(make([]byte, 0, len(text)+2), '"')
	for _, c := range []byte(text) {
		if c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return string(append(b, '"'))
}
