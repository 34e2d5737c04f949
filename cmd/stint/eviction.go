package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint/cmd/internal/service/storecheck"
)

// A question to the store has askWithin; one that it did not hear is asked again
// after pauses that grow from askAgain to askSeldom.
const (
	askWithin = 2 * time.Second
	askAgain  = time.Second
	askSeldom = 30 * time.Second
)

// An asking is a question to the store beside its work. The zero value asks
// nothing.
type asking struct {
	stop    context.CancelFunc
	running sync.WaitGroup
}

// end ends it at once.
func (a *asking) end() {
	if a.stop != nil {
		a.stop()
	}
	a.running.Wait()
}

// warnOfEviction asks the store, once it is there, whether it evicts keys in use
// when its memory is full, and says so in the log. It does not wait for that.
func (m *sharedStore) warnOfEviction(u storeURL, logger *slog.Logger) {
	var ctx context.Context
	ctx, m.asking.stop = context.WithCancel(context.Background())
	m.asking.running.Go(func() {
		for pause := askAgain; ; pause = min(2*pause, askSeldom) {
			findings, err := evicting(ctx, u)
			if err == nil || len(findings) > 0 || answered(err) {
				warnOf(findings, err, u, logger)
				return
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	})
}

// warnOf writes one warning, or why there can be none.
func warnOf(findings []storecheck.Finding, err error, u storeURL, logger *slog.Logger) {
	if len(findings) == 0 {
		if err != nil {
			logger.Debug("the store may not be asked whether it evicts keys in use", "store", u.String(), "error", err)
		}
		return
	}
	var what []string
	for _, f := range findings {
		what = append(what, f.What)
	}
	logger.Warn(strings.Join(what, "; ")+"; "+findings[0].Hint, "store", u.String())
}

// answered reports whether the server has spoken, so that it need not be asked
// again.
func answered(err error) bool {
	var said *rueidis.RedisError
	return errors.As(err, &said)
}

// evicting asks once, on a connection of its own.
func evicting(ctx context.Context, u storeURL) ([]storecheck.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	o, err := u.options()
	if err != nil {
		return nil, err
	}
	endWith(ctx, &o)
	client, err := rueidis.NewClient(o)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return storecheck.Evicting(ctx, client)
}

// endWith has connections end with ctx, also while they are being made: the
// client would wait for a server that stalls.
func endWith(ctx context.Context, o *rueidis.ClientOption) {
	dial := o.DialCtxFn // of a Unix socket
	if dial == nil {
		dial = func(ctx context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
			if config != nil {
				return (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, "tcp", address)
			}
			return d.DialContext(ctx, "tcp", address)
		}
	}
	o.DialCtxFn = func(_ context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, address, d, config)
		if err == nil {
			context.AfterFunc(ctx, func() { conn.Close() })
		}
		return conn, err
	}
}
