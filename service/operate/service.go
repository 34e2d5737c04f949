// Package operate answers what the person on call asks of a running process, and does what they
// order: how a client stands under all rules and why, who is denied most and who is nearest to a
// limit, resets, refunds, and undoing acts. It is part of the HTTP API that package rulesapi
// serves: [Service.Routes].
package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/observe/topkeys"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/rulesapi"
)

// Options are the options of a Service. All are required except Stores and Log.
type Options struct {
	Source   *rules.Source
	Editor   *rulesapi.Editor
	TopKeys  *topkeys.Tracker
	Observer *observe.Observer
	// Stores returns the state of the stores. The default reports no stores.
	Stores func() []Store
	// Log receives what operators do, without keys. The default discards it.
	Log *slog.Logger
}

// A Service answers operators. It may be used from many goroutines at once.
type Service struct {
	o     Options
	rates rates
}

// New returns a Service. Call Run, which measures its rates.
func New(o Options) *Service {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Stores == nil {
		o.Stores = func() []Store { return nil }
	}
	return &Service{o: o}
}

// Run measures rates until ctx is done.
func (s *Service) Run(ctx context.Context) { s.rates.run(ctx, s.o.Observer.CountsByRule) }

// Routes returns the routes of the API that a Service answers.
func (s *Service) Routes() []rulesapi.Route {
	return []rulesapi.Route{
		{Method: "POST", Path: "/v1/inspect", Role: rulesdb.Viewer, Serve: s.inspect},
		{Method: "GET", Path: "/v1/top", Role: rulesdb.Viewer, Serve: s.top},
		{Method: "GET", Path: "/v1/rule", Role: rulesdb.Viewer, Serve: s.ruleView},
		{Method: "GET", Path: "/v1/rules/list", Role: rulesdb.Viewer, Serve: s.ruleList},
		{Method: "GET", Path: "/v1/rules/schema", Role: rulesdb.Viewer, Serve: s.schema},
		{Method: "GET", Path: "/v1/blocked", Role: rulesdb.Viewer, Serve: s.blocked},
		{Method: "POST", Path: "/v1/reset", Role: rulesdb.Operator, Serve: s.reset},
		{Method: "POST", Path: "/v1/refund", Role: rulesdb.Operator, Serve: s.refund},
		{Method: "POST", Path: "/v1/reveal", Role: rulesdb.Operator, Serve: s.reveal},
		{Method: "POST", Path: "/v1/undo", Role: rulesdb.Operator, Serve: s.undo},
	}
}

// Attributes returns the attributes that rules read, at most a hundred.
func (s *Service) Attributes() []string {
	const most = 100
	all := s.o.Source.Policy().Rules().Attributes()
	return all[:min(most, len(all))]
}

// schema answers GET /v1/rules/schema: the JSON schema of rules files.
func (s *Service) schema(*rulesapi.Request) (int, any, error) {
	return http.StatusOK, json.RawMessage(rules.Schema()), nil
}

// Reads reports whether a request to a path changes nothing.
func Reads(path string) bool {
	return path == "/v1/inspect" || path == "/v1/top" || path == "/v1/blocked"
}
