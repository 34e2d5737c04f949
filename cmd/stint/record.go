package main

import (
	"log/slog"
	"net/http"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/cmd/internal/service/desk"
	"github.com/stint-dev/stint/cmd/internal/service/record"
	"github.com/stint-dev/stint/cmd/internal/service/rehearse"
	"github.com/stint-dev/stint/cmd/internal/service/server"
)

// recordFlags say what is kept of requests, so that rules can be tried on them.
type recordFlags struct {
	Record          string   `env:"STINT_RECORD" enum:"on,off" default:"on" help:"Keep the last requests in memory, for stint rehearse: a million, 15 minutes or 64 MiB, whichever is least; on (the default) or off."`
	RecordAttribute []string `env:"STINT_RECORD_ATTRIBUTE" placeholder:"NAME" help:"Keep this attribute of requests too. The default is those that the rules look at."`
}

// recorder returns what keeps requests; nil if nothing does.
func (c *recordFlags) recorder() *record.Recorder {
	if c.Record == "off" {
		return nil
	}
	return record.New(record.Options{Attributes: c.RecordAttribute})
}

// rehearsals returns what tries rules on the requests that were kept; nil if none
// are. api has the tokens of a database, and is nil without one.
func (d *door) rehearsals(s *sources, api server.RulesHandler, local bool, logger *slog.Logger) http.Handler {
	if s.recorder == nil {
		return nil
	}
	return rehearse.NewHandler(rehearse.HandlerOptions{
		Policy: s.source.Policy, Recorder: s.recorder, Check: checkRules, Fresh: s.where == "memory" && s.snapshot == nil, Log: logger,
		Who: func(r *http.Request) (string, rulesdb.Role, error) {
			if h, ok := api.(*desk.Handler); ok {
				return h.Who(r)
			}
			author, role := d.who(r, local)
			return author, role, nil
		},
	})
}

// who says who asks at the admin address, by the files of tokens. Where only this
// machine reaches it and there are none, everyone is an operator.
func (d *door) who(r *http.Request, local bool) (author string, role rulesdb.Role) {
	shown := server.Bearer(r)
	switch {
	case d.operators.Has(shown):
		return "operator", rulesdb.Operator
	case d.askers.Has(shown):
		return "asker", rulesdb.Viewer
	case local && d.operators == nil:
		return "local", rulesdb.Operator
	case local:
		return "local", rulesdb.Viewer
	}
	return "", ""
}
