package main

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/stint-dev/stint/cmd/internal/service/page"
	"github.com/stint-dev/stint/cmd/internal/service/rehearse"
)

// page returns the page of operators, and keeps it going until ctx is done.
// rehearsals is nil if requests are not recorded.
func (s *sources) page(ctx context.Context, of *operatorAPI, rehearsals http.Handler, background *sync.WaitGroup, logger *slog.Logger) http.Handler {
	p := page.New(page.Options{
		API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if rehearsals != nil && r.URL.Path == rehearse.Path {
				rehearsals.ServeHTTP(w, r)
				return
			}
			of.api.ServeHTTP(w, r)
		}),
		Who: of.api.Who, Service: of.service, Observer: s.observer, Ready: s.source.Ready,
		Publishes: of.inDatabase, Rehearses: rehearsals != nil, Log: logger,
	})
	background.Go(func() { p.Run(ctx) })
	return p
}
