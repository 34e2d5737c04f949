package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/stint-dev/stint/cmd/internal/service/otlp"
	"github.com/stint-dev/stint/cmd/internal/service/server"
)

// otlpFlags say where decisions are sent by OpenTelemetry.
type otlpFlags struct {
	OTLP string `name:"otlp" env:"STINT_OTLP" placeholder:"URL" help:"Send spans of decisions, and the metrics, to an OpenTelemetry collector, over OTLP/HTTP, such as http://127.0.0.1:4318. The default is nowhere."`
}

// exporter returns the exporter to a collector; nil without --otlp.
func (c *otlpFlags) exporter(logger *slog.Logger) (*otlp.Exporter, error) {
	if c.OTLP == "" {
		return nil, nil
	}
	e, err := otlp.New(otlp.Options{URL: c.OTLP, Version: buildVersion(), Log: server.Sparing(logger)})
	if err != nil {
		return nil, &usageError{"--otlp", err}
	}
	return e, nil
}

// export sends to the collector until ctx is done, in the background.
func (s *sources) export(ctx context.Context, background *sync.WaitGroup) {
	if s.exporter != nil {
		background.Go(func() { s.exporter.Run(ctx, s.observer.Gather) })
	}
}
