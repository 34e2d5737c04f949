package httplimit

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/guard"
	"github.com/stint-dev/stint/internal/ratefields"
	"github.com/stint-dev/stint/policy"
)

// A Dialect is a set of header fields that tell clients where they stand, both in answers to
// allowed requests and in denials. A denial has Retry-After in any dialect.
type Dialect uint8

const (
	// Draft11 is draft-ietf-httpapi-ratelimit-headers-11:
	//
	//	RateLimit-Policy: "login";q=5;w=60
	//	RateLimit: "login";r=4;t=12
	//
	// At most r units pass in the next t seconds, as far as the limit can tell: a bucket's t
	// is so long that r/t is never above its rate.
	Draft11 Dialect = iota
	// XRateLimit is X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset. The last
	// is a time in Unix seconds, as GitHub sends it.
	XRateLimit
	// Draft06 is RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset (in seconds from now)
	// and RateLimit-Policy, as in drafts up to 06.
	Draft06
	// NoFields sends no fields but Retry-After.
	NoFields

	dialects = iota
)

var dialectNames = [dialects]string{Draft11: "draft11", XRateLimit: "x-ratelimit", Draft06: "draft06", NoFields: "none"}

// DialectNames returns the names of all dialects, as [ParseDialect] reads them.
func DialectNames() []string { return slices.Clone(dialectNames[:]) }

// ParseDialect returns the dialect of a name. The error lists all names.
func ParseDialect(name string) (Dialect, error) {
	if i := slices.Index(dialectNames[:], name); i >= 0 {
		return Dialect(i), nil
	}
	return 0, fmt.Errorf("dialect %q: want %s", name, strings.Join(dialectNames[:], ", "))
}

// The names of fields, as [http.Header] keeps them; in HTTP, names have no case.
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

// An encoder writes the fields of one list of limits. It never changes; values that do not
// depend on the decision are made once and shared by all answers.
type encoder struct {
	dialect Dialect
	policy  []string // RateLimit-Policy, whole
	limits  []ratefields.Limit
}

func newEncoder(dialect Dialect, limits []ratefields.Limit) *encoder {
	var items []string
	for i := range limits {
		if limits[i].InFlight {
			continue
		}
		items = append(items, dialect.policy(&limits[i])...)
	}
	return &encoder{dialect, ratefields.One(strings.Join(items, ", ")), limits}
}

// policy returns the RateLimit-Policy for a single limit.
func (d Dialect) policy(l *ratefields.Limit) []string {
	if d == Draft11 {
		return l.Policy
	}
	return l.Unnamed
}

// set writes the fields of a decision. It writes none under NoFields, if no limit was asked, or if the
// tightest limit is one in flight. Price: two allocations, for values that depend on the decision.
func (e *encoder) set(h http.Header, d *stint.Decision, m mark) {
	if l := e.tightest(d); l != nil {
		own := *d
		own.ResetAfter = l.Reset(d, len(e.limits))
		e.dialect.set(h, l, e.policy, &own, m)
	}
}

// tightest returns the limit that a decision tells of, or nil.
func (e *encoder) tightest(d *stint.Decision) *ratefields.Limit {
	if e.dialect == NoFields || d.Tightest < 0 || d.Tightest >= len(e.limits) || e.limits[d.Tightest].InFlight {
		return nil
	}
	return &e.limits[d.Tightest]
}

// set writes the fields of a decision whose Remaining and ResetAfter are those of the limit
// l, joined with fields that are there already.
func (d Dialect) set(h http.Header, l *ratefields.Limit, policy []string, of *stint.Decision, m mark) {
	if len(h[d.standing()]) > 0 {
		d.join(h, l, policy, of, m)
		return
	}
	d.write(h, l, policy, of, m)
}

// write writes the fields in place of any that are there.
func (d Dialect) write(h http.Header, l *ratefields.Limit, policy []string, of *stint.Decision, m mark) {
	switch d {
	case Draft11:
		h[fieldPolicy] = policy
		h[fieldRateLimit] = marked(l.RateLimit(of), m)
	case Draft06:
		h[fieldPolicy] = policy
		h[fieldLimit] = l.Most
		h[fieldRemaining], h[fieldReset] = twoInts(ratefields.Remaining(of), min(ratefields.Seconds(l.Wait(of)), ratefields.MaxInteger), m)
	case XRateLimit:
		h[fieldXLimit] = l.Most
		h[fieldXRemaining], h[fieldXReset] = twoInts(ratefields.Remaining(of), ceilUnix(time.Now(), l.Wait(of)), m)
	}
}

// Set writes the decision of a policy into the header fields, with Retry-After for a denial,
// for servers that write bodies of their own. It returns the status for the answer: 200 when
// allowed, 403 for a block and for a missing key under on_missing: deny, 503 for a rule that
// is closed because its store fails, else 429.
//
// Price: two allocations, for values that depend on the decision; with NoFields none.
func (d Dialect) Set(h http.Header, r *policy.Result) (status int) {
	d.encode(h, r, "")
	if r.Decision.Allowed {
		return http.StatusOK
	}
	refused := refuseResult(r)
	refused.setRetry(h)
	return refused.status
}

// SetDecision is [Dialect.Set] for the decision of a limiter, or of [stint.All] with its
// limiters in the order of the parts, without parts of cost 0: a handler that asks limiters
// itself can so answer as a guard does. The status is 200 or 429. A limiter that did not decide,
// such as that on which [stint.Limiter.With] was called, gives no fields, or those of other
// limits. If a guard around the handler has set fields, they are joined, as between guards.
//
// Price: some microseconds, since the fields are made anew from the limits as they are now.
func (d Dialect) SetDecision(h http.Header, of stint.Decision, by ...*stint.Limiter) (status int) {
	var limits []ratefields.Limit
	for _, l := range by {
		limits = append(limits, guard.New(l, -1).Terms().Fields...)
	}
	e := newEncoder(d, limits)
	e.set(h, &of, "")
	if of.Allowed {
		return http.StatusOK
	}
	refused := e.refuseDenied(&of)
	refused.setRetry(h)
	return refused.status
}

// encode writes the fields of a decision of a policy: it lists all limits that the request
// was held to, and says where the client stands with the tightest.
func (d Dialect) encode(h http.Header, r *policy.Result, m mark) {
	if tightest, policies, own := d.describe(r); tightest != nil {
		d.set(h, tightest, policies, &own, m)
	}
}

// describe returns what encode writes; no limit if there is nothing to write.
func (d Dialect) describe(r *policy.Result) (tightest *ratefields.Limit, policies []string, own stint.Decision) {
	at := r.Tightest
	if d == NoFields || at < 0 || r.Rules[at].Action != "" {
		return nil, nil, own
	}
	held := 0
	for i := range r.Rules {
		one := &r.Rules[i]
		if one.Shadow || one.Action != "" || one.Hidden() || one.Limit.InFlight() {
			continue // limits in flight are no quota over time
		}
		l := one.Fields()
		if held++; held == 1 {
			policies = d.policy(l)
		} else if d != XRateLimit {
			policies = []string{policies[0] + ", " + d.policy(l)[0]}
		}
		if i == at {
			tightest = l
		}
	}
	own = r.Decision
	if tightest == nil {
		if at = leastShown(r); at < 0 {
			return nil, nil, own
		}
		e := &r.Rules[at]
		tightest, own.Allowed, own.Remaining, own.RetryAfter = e.Fields(), !e.Denied, e.Remaining, e.RetryAfter
	}
	own.ResetAfter = r.Rules[at].ResetAfter // the decision has the longest of all limits
	return tightest, policies, own
}

// leastShown returns the entry that takes the place of a hidden tightest limit: of the
// entries that clients may see, the one that lets the fewest more requests pass; -1 if there
// is none.
func leastShown(r *policy.Result) int {
	least := -1
	for i := range r.Rules {
		e := &r.Rules[i]
		if e.Shadow || e.Action != "" || e.Hidden() || e.Limit.InFlight() || e.Remaining < 0 {
			continue
		}
		if least < 0 || e.Remaining/max(e.Cost, 1) < r.Rules[least].Remaining/max(r.Rules[least].Cost, 1) {
			least = i
		}
	}
	return least
}

// ceilUnix returns the first Unix second that begins no earlier than wait from now.
func ceilUnix(now time.Time, wait time.Duration) int64 {
	s := now.Unix() + int64(wait/time.Second)
	rest := int64(now.Nanosecond()) + int64(wait%time.Second)
	return s + ratefields.Seconds(time.Duration(rest))
}

// twoInts returns two numbers as the values of two fields, the first with the mark, in two
// allocations.
func twoInts(a, b int64, m mark) (as, bs []string) {
	var buf [48]byte
	text := strconv.AppendInt(buf[:0], a, 10)
	cut := len(text)
	text = strconv.AppendInt(text, b, 10)
	both := string(text)
	values := []string{both[cut:], both[:cut], string(m)}
	return values[1:2], values[:1:1]
}
