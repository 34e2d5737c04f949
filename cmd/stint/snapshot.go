package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/stint-dev/stint/cmd/internal/service/snapshot"
)

// snapshotFlags say where the memory of the process is kept.
type snapshotFlags struct {
	Snapshot      string        `env:"STINT_SNAPSHOT" placeholder:"FILE" help:"Keep what keys have used in this file, so that it survives a restart: loaded at the start, saved every minute and at SIGTERM. Each process needs a file of its own."`
	SnapshotEvery time.Duration `env:"STINT_SNAPSHOT_EVERY" default:"1m" help:"How often (${default}): a process that is killed loses no more."`
}

// leastSnapshotEvery keeps the disk from being all that the process does.
const leastSnapshotEvery = 100 * time.Millisecond

// check refuses flags that make no sense.
func (c *snapshotFlags) check() error {
	if c.Snapshot != "" && c.SnapshotEvery < leastSnapshotEvery {
		return usage("--snapshot-every", "%v: at least %v", c.SnapshotEvery, leastSnapshotEvery)
	}
	return nil
}

// load reads the snapshot into the store in memory, before limits are bound.
func (s *sources) load(c *snapshotFlags, logger *slog.Logger) (err error) {
	if c.Snapshot == "" {
		return nil
	}
	if s.snapshot, err = snapshot.Open(c.Snapshot, s.local, logger); err != nil {
		return fmt.Errorf("--snapshot: %w", err)
	}
	s.observer.WatchSnapshot(s.snapshot.Saved)
	return nil
}

// save keeps saving until ctx is done.
func (s *sources) save(ctx context.Context, c *snapshotFlags, background *sync.WaitGroup) {
	if s.snapshot != nil {
		background.Go(func() { s.snapshot.Run(ctx, c.SnapshotEvery) })
	}
}

// saveLast saves once nothing is decided any more.
func (s *sources) saveLast(logger *slog.Logger) error {
	if s.snapshot == nil {
		return nil
	}
	if err := s.snapshot.Save(); err != nil {
		return err
	}
	logger.Info("snapshot: saved")
	return nil
}
