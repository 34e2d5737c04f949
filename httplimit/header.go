package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ratefields"
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

// An encoder writes the fields of one list of limits. It never changes; what
// does not depend on the decision is made once and shared by all answers, in
// slices that an append copies.
type encoder struct {
	dialect Dialect
	policy  []string // RateLimit-Policy, whole
	layers  []layer
}

// A layer is one limit as the fields of a dialect tell it.
type layer struct {
	ratefields.Limit
	policy []string // its RateLimit-Policy, if it is the only one
	most   []string // that passes at once, as text
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
	y := layer{Limit: ratefields.Of(name, l), most: one(strconv.FormatInt(l.Capacity(), 10))}
	policy := y.Policy()
	if dialect != Draft11 { // which alone has names
		policy = strings.TrimPrefix(policy, y.Quoted+";q=")
	}
	y.policy = one(policy)
	return y
}

// one returns a slice of one string that an append copies.
func one(s string) []string { return []string{s}[:1:1] }

// set writes the fields of a decision, none where no limit was asked. Price: two
// allocations, for what depends on the decision; none without fields.
func (e *encoder) set(h http.Header, d *stint.Decision) {
	if e.dialect == NoFields || d.Tightest < 0 || d.Tightest >= len(e.layers) {
		return
	}
	y, own := &e.layers[d.Tightest], *d
	own.ResetAfter = y.Reset(d, len(e.layers))
	y.set(h, e.dialect, e.policy, &own)
}

// set writes the fields of a decision whose Remaining and ResetAfter are the
// layer's.
func (y *layer) set(h http.Header, dialect Dialect, policy []string, d *stint.Decision) {
	switch dialect {
	case Draft11:
		h[fieldPolicy] = policy
		h[fieldRateLimit] = []string{y.RateLimit(d)}
	case Draft06:
		h[fieldPolicy] = policy
		h[fieldLimit] = y.most
		h[fieldRemaining], h[fieldReset] = twoInts(ratefields.Remaining(d), min(ratefields.Seconds(y.Wait(d)), ratefields.MaxInteger))
	case XRateLimit:
		h[fieldXLimit] = y.most
		h[fieldXRemaining], h[fieldXReset] = twoInts(ratefields.Remaining(d), ceilUnix(time.Now(), y.Wait(d)))
	}
}

// ceilUnix returns the Unix second that begins no earlier than wait from now.
func ceilUnix(now time.Time, wait time.Duration) int64 {
	s := now.Unix() + int64(wait/time.Second)
	rest := int64(now.Nanosecond()) + int64(wait%time.Second)
	return s + ratefields.Seconds(time.Duration(rest))
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
