package main

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/cmd/internal/service/record"
	"github.com/stint-dev/stint/cmd/internal/service/rehearse"
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
// are. of says who may. Checkpoints are made in the background until ctx is done.
func (s *sources) rehearsals(ctx context.Context, of *office, background *sync.WaitGroup, logger *slog.Logger) http.Handler {
	if s.recorder == nil {
		return nil
	}
	var checkpoints *rehearse.Checkpoints
	if s.where == "memory" {
		checkpoints = new(rehearse.Checkpoints)
		background.Go(func() { checkpoints.Keep(ctx, s.local) })
	}
	return rehearse.NewHandler(rehearse.HandlerOptions{
		Checkpoints: checkpoints, Policy: s.source.Policy, Recorder: s.recorder, Check: checkRules, Fresh: s.where == "memory" && s.snapshot == nil, Log: logger,
		Who: of.api.Who,
		Note: func(ctx context.Context, author string) error {
			return of.desk.Note(ctx, rulesdb.Act{Author: author, Act: "key reveal", Subject: "rehearsal"})
		},
	})
}
