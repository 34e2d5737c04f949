package policy

import (
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ratefields"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// A Result is the answer to one request. It may be reused, for one request at a
// time, which saves allocations; the earlier answer is then lost. The zero Result is
// ready to use.
type Result struct {
	// Decision is the answer of all rules that are not in shadow. Limit, Remaining and Taken
	// are those of Rules[Tightest], in its units. If no rule matched, or only rules that set
	// no limit, it is allowed with a Limit of 0. A block, and a missing key under on_missing:
	// deny, deny for good: RetryAfter is [stint.Never]. Denied and Decision.Tightest number,
	// in order, the entries of Rules that are not in shadow and have a limit over time;
	// Denied has room for the first [stint.MaxLimits].
	Decision stint.Decision
	// Matched reports whether a rule that is not in shadow matched.
	Matched bool
	// ShadowDenied reports whether a rule in shadow would have denied.
	ShadowDenied bool
	// Tightest is the index in Rules of the entry that the answer is about: when denied, the
	// limit that denied for longest; else the one that lets the fewest more such requests
	// pass. Of several equal ones it is the first. It is -1 when there is none.
	Tightest int
	// StoreError is the error of the store, if the rules decided by their on_store_failure
	// because of it.
	StoreError error
	// Rules has an entry for each limit of each rule that matched, in the
	// order of the rules; a rule that sets no limit has one. It is valid until
	// the Result is used again.
	Rules []RuleResult
	// WillRelease says that the caller will call the function that [Result.Release] returns
	// when the request ends. Without it, deciding about a request that a rule holds to a
	// limit in flight fails with [stint.ErrInFlight], except where the request is reserved:
	// settling gives its places back. Methods leave it as the caller has set it.
	WillRelease bool
	// Costs are what the next request costs under the rules that they name; the other rules
	// take the plain cost. Methods leave them as the caller has set them. A name that no rule
	// has is a [CostsError]; the name of a rule that does not hold the request is passed over
	// ([Result.Counted]). The joined answer counts the request as 1. All rules are charged in
	// one step, except in a reservation: there each rule that is named has a reservation of
	// its own, as rules have that go by the response ([Policy.Begin]). [Policy.Refund] and
	// [Policy.DecideAll] refuse costs by rule.
	Costs Costs
	// Reserves, if it is set, is told how many reservations the request has open, whenever that
	// changes, and before one more is made. An error refuses that one; it must match
	// [stint.ErrFull]. Methods leave it as the caller has set it.
	Reserves func(open int) error
	// Answers has an entry for each request of [Policy.DecideAll], in order,
	// and is empty after the other methods. It is valid as long as Rules.
	Answers []Answer

	resultBuffer
}

// A RuleResult is the answer of one limit of a matching rule.
type RuleResult struct {
	*RuleLimit
	// Cost is what the request costs under this rule. A request of cost 0 passes and is not
	// charged.
	Cost int64
	// Remaining is what the limit has left after the decision, in units, or -1
	// if it was not asked: the request is blocked, or the store failed and the
	// rule is open then.
	Remaining int64
	// Used is how many units of Capacity are in use after the decision, or -1 if that is not
	// known: Remaining is -1, the store failed and the rule is closed then, or a ban denies.
	// [Policy.Standings], [Policy.UsedOf] and answers about settlements know it under a ban
	// too, and what is above Capacity, as far as stores keep that.
	Used int64
	// Capacity is the capacity of the limit that decided: of Limit, or while the store fails
	// of this process's share of it.
	Capacity int64
	// ResetAfter is the wait until the limit is as if never used.
	ResetAfter time.Duration
	// RetryAfter is 0 unless the limit denied: then the least wait after which
	// it would let the same request pass, or [stint.Never].
	RetryAfter stint.Wait
	// Denied reports whether this limit denied, or would have if in shadow.
	Denied bool
	// Banned reports whether the limit denied by a ban; RetryAfter is the time until its end.
	Banned bool
	// Missing reports whether an attribute of the key was missing.
	Missing bool
	// Failed is how the rule decided without its store; [NotFailed] if the store decided.
	Failed Failure

	match int // index of the rule in resultBuffer.matches
}

// Missing returns the first attribute that was missing of the key under which r.Rules[i] counts; ""
// if none was.
func (r *Result) Missing(i int) string {
	if h := &r.matches[r.Rules[i].match]; h.missing > 0 {
		return h.rule.Key[h.missing-1].Name
	}
	return ""
}

// ByRule calls yield once for each rule that matched, with the entry that stands for the
// rule, and its index in Rules: the first of the rule's limits that denied, else its first.
// It is for range: for i, e := range r.ByRule. It allocates nothing.
func (r *Result) ByRule(yield func(i int, e *RuleResult) bool) {
	for from := 0; from < len(r.Rules); {
		at, past := from, from
		for ; past < len(r.Rules) && r.Rules[past].Rule == r.Rules[from].Rule; past++ {
			if r.Rules[past].Denied && !r.Rules[at].Denied {
				at = past
			}
		}
		if !yield(at, &r.Rules[at]) {
			return
		}
		from = past
	}
}

// A Verdict is what one limit of a rule says to a request, or the whole rule: see
// [Result.ByRule].
type Verdict uint8

const (
	// VerdictAllowed lets the request pass; another limit may have denied it.
	VerdictAllowed Verdict = iota
	// VerdictDenied is for a limit that is used up.
	VerdictDenied
	// VerdictBlocked is for a rule that never lets the request pass: it is a block,
	// or an attribute of its key is missing.
	VerdictBlocked
	// VerdictShadowDenied is for a rule in shadow that would have denied the request.
	VerdictShadowDenied

	verdicts = iota
)

// String returns the verdict as metrics name it: allowed, denied, blocked or
// shadow_denied.
func (v Verdict) String() string {
	return [verdicts]string{"allowed", "denied", "blocked", "shadow_denied"}[v]
}

// Verdict returns what the limit says.
func (e *RuleResult) Verdict() Verdict {
	switch {
	case !e.Denied:
		return VerdictAllowed
	case e.Shadow:
		return VerdictShadowDenied
	case e.Action != "" && e.Failed == NotFailed:
		return VerdictBlocked
	}
	return VerdictDenied
}

// A RuleLimit is one limit of a rule, or the action of a rule that has none. It does not
// change, and must not be copied.
type RuleLimit struct {
	// Rule is the name of the rule.
	Rule string
	// Label names the limit in answers: the rule's name, and for a rule of
	// several limits a slash and what identifies each. It is ASCII without
	// quotes.
	Label string
	// Variant says which plan of the rule the limit belongs to: "" is the rule's own, else
	// "tier NAME", "override NAME", or "override" for an override without a name and a
	// customer's own.
	Variant string
	// Limit is the limit, with the name that its state belongs to. It is the zero Limit where
	// Action says that the rule has none.
	Limit stint.Limit
	// Text is the limit as canonical text, or the action.
	Text string
	// Action is "" for a limit, else "unlimited", "block" or "missing": the
	// key was missing and the rule says deny.
	Action string
	// Shadow reports whether the rule is in shadow. Quota is true under shadow: quota; see
	// [Answer.Matched].
	Shadow, Quota bool

	inFlight string // the name that a limit in flight is counted under; "" for others
	capacity int64  // of Limit: each request asks

	fields atomic.Pointer[ratefields.Limit]
	reply  *rulesfile.Reply // nil where no rule of a file has the limit
}

// Reply returns what clients are told of the limit. The caller must not change it.
func (l *RuleLimit) Reply() rulesfile.Reply {
	if l.reply == nil {
		return rulesfile.Reply{}
	}
	return *l.reply
}

// Hidden reports whether clients are not told of the limit.
func (l *RuleLimit) Hidden() bool { return l.reply != nil && l.reply.Hidden }

// Fields returns the form of the limit in header fields and metadata. The first call makes
// it.
func (l *RuleLimit) Fields() *ratefields.Limit {
	if f := l.fields.Load(); f != nil {
		return f
	}
	f := ratefields.Of(l.Label, l.Limit)
	l.fields.Store(&f)
	return &f
}

// A Failure is what a rule does when its store cannot decide.
type Failure uint8

// The words of on_store_failure. NotFailed is for what the store decided.
const (
	NotFailed   Failure = iota
	FailLocal           // decide by Options.Local
	FailOpen            // pass
	FailClosed          // deny, for a second
	failureEnds = iota
)

// String returns the word of the rules file, and "" for NotFailed.
func (f Failure) String() string {
	return [failureEnds]string{"", "local", "open", "closed"}[f]
}
