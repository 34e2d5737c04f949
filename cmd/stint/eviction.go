package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/service/storecheck"
)

// A check may take evictionTimeout. If the store did not answer, the next check comes
// after a pause that grows from evictionRetryMin to evictionRetryMax; if it did, after
// evictionRetryMax.
const (
	evictionTimeout  = 2 * time.Second
	evictionRetryMin = time.Second
	evictionRetryMax = 30 * time.Second
)

// An evictionCheck asks the store, in the background, whether it evicts keys in use.
// The zero value asks nothing.
type evictionCheck struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	evicted atomic.Int64 // how many keys the masters had evicted at the last check
}

// end ends the checks at once.
func (a *evictionCheck) end() {
	if a.stop != nil {
		a.stop()
	}
	a.running.Wait()
}

// warnOfEviction starts a goroutine that asks the store, once it answers, whether it
// evicts keys in use when its memory is full, and logs a warning if it does. After that the
// goroutine counts evicted keys now and then. It also logs that the store does not answer
// at the start.
func (m *sharedStore) warnOfEviction(u storeURL, logger *slog.Logger) {
	var ctx context.Context
	ctx, m.evictionCheck.stop = context.WithCancel(context.Background())
	m.evictionCheck.running.Go(func() {
		known, missed := false, false
		for pause := evictionRetryMin; ; pause = min(2*pause, evictionRetryMax) {
			findings, evicted, err := checkEviction(ctx, u)
			if !known && (err == nil || len(findings) > 0 || isServerReply(err)) {
				known = true
				m.evictionCheck.evicted.Store(evicted)
				logEviction(findings, err, u, logger)
			}
			switch {
			case err == nil && missed:
				missed = false
				logger.Info("the store answers", "store", u.String())
			case err != nil && !known && !missed && !isServerReply(err) && ctx.Err() == nil:
				missed = true
				logger.Warn("the store does not answer: until it does, rules decide without it (on_store_failure)", "store", u.String(), "error", err)
			}
			if isServerReply(err) { // the server refuses the question
				return
			}
			if before := m.evictionCheck.evicted.Load(); err == nil {
				m.evictionCheck.evicted.Store(evicted)
				if pause = evictionRetryMax; evicted > before {
					logger.Warn("the store has evicted keys: those that were in use start afresh; set maxmemory-policy noeviction, or give it more memory", "store", u.String(), "keys", evicted-before)
				}
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	})
}

// logEviction logs one warning for all findings, or that the store cannot be asked.
func logEviction(findings []storecheck.Finding, err error, u storeURL, logger *slog.Logger) {
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

// isServerReply reports whether an error is a reply of the server: to ask again is useless.
func isServerReply(err error) bool {
	var said redis.Error
	return errors.As(err, &said)
}

// checkEviction asks once, on a connection of its own.
func checkEviction(ctx context.Context, u storeURL) ([]storecheck.Finding, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	o, err := u.options()
	if err != nil {
		return nil, 0, err
	}
	client, err := redisstore.Connect(ctx, o)
	if err != nil {
		return nil, 0, err
	}
	defer client.Close()
	return storecheck.Evicting(ctx, client)
}
