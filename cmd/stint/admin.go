package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/stint-dev/stint/cmd/internal/planner/lab"
	"github.com/stint-dev/stint/cmd/internal/service/server"
)

// adminConns is how many connections operators may have: less than the
// descriptors that those of clients leave.
const adminConns = 32

// serveAdmin serves operators at the address of --admin until ctx is done, in
// the background. An address that others reach asks for tokens, under https if
// the service has a certificate; those of a database of rules are tokens too. Without
// tokens it has no lab. of is what operators ask and do.
func (d *access) serveAdmin(ctx context.Context, address string, admin *server.Admin, s *sources, of *office, background *sync.WaitGroup, logger *slog.Logger) error {
	if address == "" {
		return nil
	}
	ln, err := listen(ctx, "--admin", address)
	if err != nil {
		return err
	}
	d.local = server.Local(ln.Addr())
	o := server.ServeOptions{Log: logger, IdleTimeout: 5 * time.Second} // of few connections: probes need them too
	tokens := d.clients != nil || d.operators != nil || of.inDatabase
	switch {
	case d.local:
	case !tokens:
		logger.Warn("everyone who reaches this address sees the metrics", "admin", ln.Addr().String())
	case d.certificate == nil:
		logger.Warn("tokens go over the network in clear: --tls-cert and --tls-key encrypt them", "admin", ln.Addr().String())
	}
	if !d.local && tokens && d.certificate != nil {
		o.TLS = d.certificate.Config()
	}
	lab := lab.New(lab.Options{Aside: true}) // decisions come first
	rehearsals := s.rehearsals(ctx, of, background, logger)
	handler := server.NewAdminHandler(ln.Addr(), server.AdminHandlerOptions{
		Admin: admin, Page: s.page(ctx, of, rehearsals, background, logger), Rules: of.api, Usage: s.usage(logger),
		Rehearse: rehearsals, Lab: lab, Simulate: lab, Clients: d.clients, Operators: d.operators,
	})
	background.Go(func() {
		bounded := server.NewConns(server.ConnsOptions{Max: adminConns, PerAddress: adminConns, Log: logger}).Listen(ln)
		if err := server.Serve(ctx, bounded, handler, o); err != nil {
			logger.Error("--admin", "error", err)
		}
	})
	logger.Info("listening", "admin", ln.Addr().String(), "tls", o.TLS != nil)
	return nil
}
