package observe

import (
	"errors"
	"slices"
	"strings"

	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
)

// storeFailed writes the first failure of the store by each cause in a period. Of r,
// unless it is nil, a line names the rules: one of them has the key that the server
// does not take, which the line does not show.
func (d *denials) storeFailed(entrypoint string, r *policy.Result, err error) {
	if d == nil {
		return
	}
	cause := causeOf(err)
	if !d.failures.first(cause, "others") {
		return
	}
	attrs := []any{"interface", entrypoint}
	if names := rulesOf(r); names != "" && cause != noAnswer {
		attrs = append(attrs, "rules", names)
	}
	d.log.Error("store failed", append(attrs, "error", err)...)
}

// cannot writes the first request in a period that an interface cannot hold to a rule for a
// reason: the operator has to see it, not the client.
func (d *denials) cannot(entrypoint, why string, err error) {
	if d != nil && d.failures.first(why, "others") {
		d.log.Error(why, "interface", entrypoint, "error", err)
	}
}

// requestRefused writes the first request in a period that was refused for a reason: neither
// the client nor its operator may see the answer. It has nothing that a client has written.
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

// Why interfaces cannot.
const (
	endUnknown       = "request refused: this interface does not learn when it ends"
	attributeUnknown = "request refused: this interface does not learn what a rule looks at"
)

const noAnswer = "no answer"

// causeOf returns what failures have in common: the word that the server's reply begins
// with, or that there was none.
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

// rulesOf returns the names of the rules that a request is held to.
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
