package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/stint-dev/stint/cmd/internal/service/server"
)

// follow reads the rules again when their file changes, and on SIGHUP the
// rules, the tokens and the certificate, until ctx is done. Tokens are read again
// when their files change, too. What cannot be read stays as it was.
func (s *sources) follow(ctx context.Context, d *access, background *sync.WaitGroup, logger *slog.Logger) {
	background.Go(func() {
		if err := s.source.Watch(ctx); err != nil {
			logger.Error("the rules file is not watched: SIGHUP reads it again", "error", err)
		}
	})
	d.watchTokens(ctx, background, logger)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // before a signal can arrive: it would end the process
	background.Go(func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
			}
			_ = s.source.Reload() // logs what is wrong itself
			d.reload(logger)
		}
	})
}

// watchTokens reads the files of tokens again when they change, until ctx is
// done.
func (d *access) watchTokens(ctx context.Context, background *sync.WaitGroup, logger *slog.Logger) {
	for flag, tokens := range map[string]*server.Tokens{"--token-file": d.clients, "--operator-token-file": d.operators} {
		if tokens != nil {
			background.Go(func() {
				tokens.Watch(ctx, func(err error) {
					logger.Error("not read again, stays as it was", "what", flag, "error", err)
				})
			})
		}
	}
}

// reload reads the files of tokens and of TLS again.
func (d *access) reload(logger *slog.Logger) {
	note := func(what string, err error) {
		if err != nil {
			logger.Error("not read again, stays as it was", "what", what, "error", err)
		}
	}
	if d.clients != nil {
		note("--token-file", d.clients.Reload())
	}
	if d.operators != nil {
		note("--operator-token-file", d.operators.Reload())
	}
	if d.certificate != nil {
		note("--tls-cert, --tls-key", d.certificate.Reload())
	}
}
