package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ratefields"
	"github.com/stint-dev/stint/policy"
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
	limits  []encodedLimit
}

// An encodedLimit is one limit as the fields of a dialect tell it.
type encodedLimit struct {
	ratefields.Limit
	policy []string // its RateLimit-Policy, if it is the only one
	most   []string // that passes at once, as text
}

// newEncoder returns the encoder of limits under their labels.
func newEncoder(dialect Dialect, labels []string, limits []stint.Limit) *encoder {
	e := &encoder{dialect: dialect}
	var items []string
	for i, l := range limits {
		y := newEncodedLimit(dialect, labels[i], l)
		e.limits = append(e.limits, y)
		items = append(items, y.policy...)
	}
	e.policy = one(strings.Join(items, ", "))
	return e
}

// newEncodedLimit returns how the fields of a dialect tell of a limit.
func newEncodedLimit(dialect Dialect, name string, l stint.Limit) encodedLimit {
	y := encodedLimit{Limit: ratefields.Of(name, l), most: one(strconv.FormatInt(l.Capacity(), 10))}
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
	if e.dialect == NoFields || d.Tightest < 0 || d.Tightest >= len(e.limits) {
		return
	}
	y, own := &e.limits[d.Tightest], *d
	own.ResetAfter = y.Reset(d, len(e.limits))
	y.set(h, e.dialect, e.policy, &own)
}

// set writes the fields of a decision whose Remaining and ResetAfter are the
// limit's.
func (y *encodedLimit) set(h http.Header, dialect Dialect, policy []string, d *stint.Decision) {
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

// Fields writes the decision of a policy into the header fields of a dialect, and
// returns the status that the guard of [NewPolicy] answers with: for servers that
// answer in bodies of their own. The zero value is ready to use.
//
// Fields may be used from many goroutines at once, and must not be copied. It caches
// the encoded form of each limit, at some hundred bytes each.
type Fields struct {
	// Dialect is the header fields to send. The default value is Draft11.
	Dialect Dialect

	known atomic.Pointer[knownLimits]
}

// Set writes the fields of an answer that p gave, and Retry-After with a
// denial. It returns the status for the answer: 200 when allowed, 403 for a block
// and for a required key that is missing, 503 for a rule that is closed because its
// store fails, else 429.
//
// Price: two allocations, for what depends on the decision; none without
// fields.
func (f *Fields) Set(h http.Header, p *policy.Policy, r *policy.Result) (status int) {
	f.encode(h, p, r)
	if r.Decision.Allowed {
		return http.StatusOK
	}
	refused := refuseResult(r)
	refused.setRetry(h)
	return refused.status
}

// encode writes the fields of a decision: of all limits that the request was
// held to, and where it stands with the tightest.
func (f *Fields) encode(h http.Header, p *policy.Policy, r *policy.Result) {
	at := r.Tightest
	if f.Dialect == NoFields || at < 0 || r.Rules[at].Action != "" {
		return
	}
	known := f.limitsOf(p)
	held, tightest := 0, (*encodedLimit)(nil)
	var policies []string
	for i := range r.Rules {
		one := &r.Rules[i]
		if one.Shadow || one.Action != "" {
			continue
		}
		y := known.of(f.Dialect, one.RuleLimit)
		if held++; held == 1 {
			policies = y.policy
		} else if f.Dialect != XRateLimit {
			policies = []string{policies[0] + ", " + y.policy[0]}
		}
		if i == at {
			tightest = y
		}
	}
	if tightest != nil {
		d := r.Decision
		d.ResetAfter = r.Rules[at].ResetAfter // not that of another limit
		tightest.set(h, f.Dialect, policies, &d)
	}
}

// knownLimits remembers how fields tell of a policy's limits.
type knownLimits struct {
	policy *policy.Policy
	limits sync.Map // *policy.RuleLimit to *encodedLimit
	count  atomic.Int64
}

// mostKnown bounds what is remembered, at some hundred bytes each. The fields of
// limits beyond it, as a file with very many overrides may have, are encoded anew
// each time.
const mostKnown = 10_000

func (f *Fields) limitsOf(p *policy.Policy) *knownLimits {
	known := f.known.Load()
	if known == nil || known.policy != p {
		known = &knownLimits{policy: p}
		f.known.Store(known)
	}
	return known
}

func (k *knownLimits) of(dialect Dialect, l *policy.RuleLimit) *encodedLimit {
	if y, ok := k.limits.Load(l); ok {
		return y.(*encodedLimit)
	}
	y := newEncodedLimit(dialect, l.Label, l.Limit)
	if k.count.Add(1) <= mostKnown {
		k.limits.Store(l, &y)
	}
	return &y
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
