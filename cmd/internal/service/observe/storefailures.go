package observe

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
)

// mostCauses is how many causes of a store's failure have lines in a period.
const mostCauses = 16

// storeFailures writes the first failure of the store by each cause in a period; the
// others are counted.
type storeFailures struct {
	mu    sync.Mutex
	times map[string]uint64 // by cause
}

// failed notes a failure. Of r, unless it is nil, a line names the rules: one of them
// has the key that the server does not take, which the line does not show.
func (f *storeFailures) failed(log *slog.Logger, entrypoint string, r *policy.Result, err error) {
	cause := causeOf(err)
	f.mu.Lock()
	if f.times == nil {
		f.times = make(map[string]uint64)
	}
	if _, known := f.times[cause]; !known && len(f.times) == mostCauses {
		cause = "others"
	}
	f.times[cause]++
	first := f.times[cause] == 1
	f.mu.Unlock()
	if !first {
		return
	}
	attrs := []any{"door", entrypoint}
	if names := rulesOf(r); names != "" && cause != noAnswer {
		attrs = append(attrs, "rules", names)
	}
	log.Error("store failed", append(attrs, "error", err)...)
}

// sumUp ends a period.
func (f *storeFailures) sumUp(log *slog.Logger, since time.Time) {
	f.mu.Lock()
	times := f.times
	f.times = nil
	f.mu.Unlock()
	var causes []string
	for cause, n := range times {
		if n > 1 {
			causes = append(causes, cause)
		}
	}
	slices.SortFunc(causes, func(a, b string) int { return cmp.Or(cmp.Compare(times[b], times[a]), cmp.Compare(a, b)) })
	for _, cause := range causes {
		log.Error("store failed again", "cause", cause, "times", times[cause]-1, "since", since)
	}
}

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
