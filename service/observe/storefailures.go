package observe

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
)

// storeFailed logs the first failure of the store for each cause in a period. If r is not nil, the
// line names its rules, since one of them has the key that the server does not accept; the line
// does not show the key.
func (d *denials) storeFailed(entrypoint string, r *policy.Result, err error) {
	if d == nil {
		return
	}
	d.lastFailed.Store(time.Now().UnixNano())
	cause := causeOf(err)
	if !d.failures.first(cause, "others") {
		return
	}
	defer d.lost.Store(true)
	attrs := []any{"interface", entrypoint}
	if names := rulesOf(r); names != "" && cause != noAnswer {
		attrs = append(attrs, "rules", names)
	}
	d.log.Error("store failed", append(attrs, "error", err)...)
}

// calm is how long no decision of the store may have failed before the log says that it is back.
const calm = time.Second

// storeDecided logs once that the store decides again, if the log says that it failed. open reports
// whether calls are still kept from a server.
func (d *denials) storeDecided(r *policy.Result, open func() bool) {
	if d == nil || !d.lost.Load() || time.Now().UnixNano()-d.lastFailed.Load() < int64(calm) {
		return
	}
	for _, e := range r.ByRule {
		if e.Action == "" && e.Failed == policy.NotFailed && e.Remaining >= 0 && !open() && d.lost.CompareAndSwap(true, false) {
			d.log.Info("the store decides again", "failed_last", time.Unix(0, d.lastFailed.Swap(0)))
			return
		}
	}
}

// cannot logs the first request in a period that an interface cannot hold to a rule, for each
// reason. The operator must see it, not the client.
func (d *denials) cannot(entrypoint, why string, err error) {
	if d != nil && d.failures.first(why, "others") {
		d.log.Error(why, "interface", entrypoint, "error", err)
	}
}

// requestRefused logs the first request in a period that was refused for a reason, since the
// client's operator may not see the answer. The line has nothing that a client has written.
func (d *denials) requestRefused(entrypoint string, err error) {
	if d == nil {
		return
	}
	why := "what was asked is not valid"
	if request, ok := errors.AsType[*policy.RequestError](err); ok {
		why = request.Attribute + ": " + request.Reason
	}
	if d.refusals.first(entrypoint+" "+why, entrypoint+" others") {
		d.log.Info("request refused", "interface", entrypoint, "why", why)
	}
}

// Reasons for cannot.
const (
	endUnknown       = "request refused: this interface does not learn when it ends"
	attributeUnknown = "request refused: this interface does not learn what a rule looks at"
	notReady         = "request refused: there are no rules yet"
)

const noAnswer = "no answer"

// causeOf returns what similar failures have in common: the first word of the server's reply, or
// that there was no reply.
func causeOf(err error) string {
	var reply redisstore.ReplyError
	switch {
	case errors.As(err, &reply):
		if word, _, _ := strings.Cut(string(reply), " "); word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" && len(word) < 32 {
			return word
		}
		return "ERR"
	case errors.Is(err, redisstore.ErrConfiguration):
		return "configuration"
	}
	return noAnswer
}

// rulesOf returns the names of the rules that apply to a request.
func rulesOf(r *policy.Result) string {
	if r == nil {
		return ""
	}
	var names []string
	for _, e := range r.ByRule {
		if !slices.Contains(names, e.Rule) {
			names = append(names, e.Rule)
		}
	}
	return strings.Join(names, ",")
}
