package httplimit

import (
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/stint-dev/stint/internal/ratefields"
	"github.com/stint-dev/stint/policy"
)

// Fields writes the decision of a policy into the header fields of a dialect, and
// returns the status that the guard of [NewPolicy] answers with: for servers that
// answer in bodies of their own. The zero value is ready to use.
//
// Fields may be used from many goroutines at once, and must not be copied. It caches
// the encoded form of each limit, at some hundred bytes each.
type Fields struct {
	// Dialect is the header fields to send. The default value is Draft11.
	Dialect Dialect

	known atomic.Pointer[knownLayers]
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
	known := f.layersOf(p)
	held, tightest := 0, (*layer)(nil)
	var policies []string
	for i := range r.Rules {
		one := &r.Rules[i]
		if one.Shadow || one.Action != "" {
			continue
		}
		y := known.of(f.Dialect, one.Layer)
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
		d.ResetAfter = r.Rules[at].ResetAfter // not that of another layer
		tightest.set(h, f.Dialect, policies, &d)
	}
}

// refuseResult returns the answer to a denial.
func refuseResult(r *policy.Result) refusal {
	f := refuseQuota
	for i := range r.Rules {
		switch one := &r.Rules[i]; {
		case one.Shadow || !one.Denied:
			continue
		case one.Action != "":
			f = refuseMissing
		case one.Failed == policy.FailClosed && f.status != http.StatusForbidden:
			f = refuseError
		}
	}
	for _, name := range violated(r) {
		f.violated = append(f.violated, ratefields.Quote(name))
	}
	f.setWait(r.Decision.RetryAfter)
	return f
}

// violated returns the labels of what denied.
func violated(r *policy.Result) (names []string) {
	for i := range r.Rules {
		if one := &r.Rules[i]; one.Denied && !one.Shadow {
			names = append(names, ratefields.Printable(one.Label))
		}
	}
	return names
}

// knownLayers remembers how fields tell of a policy's layers.
type knownLayers struct {
	policy *policy.Policy
	layers sync.Map // *policy.Layer to *layer
	count  atomic.Int64
}

// mostKnown bounds what is remembered, at some hundred bytes each. The fields of
// layers beyond it, as a file with very many overrides may have, are encoded anew
// each time.
const mostKnown = 10_000

func (f *Fields) layersOf(p *policy.Policy) *knownLayers {
	known := f.known.Load()
	if known == nil || known.policy != p {
		known = &knownLayers{policy: p}
		f.known.Store(known)
	}
	return known
}

func (k *knownLayers) of(dialect Dialect, l *policy.Layer) *layer {
	if y, ok := k.layers.Load(l); ok {
		return y.(*layer)
	}
	y := newLayer(dialect, l.Label, l.Limit)
	if k.count.Add(1) <= mostKnown {
		k.layers.Store(l, &y)
	}
	return &y
}
