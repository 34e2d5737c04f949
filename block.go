package stint

import (
	"context"
	"fmt"
	"time"

	"github.com/stint-dev/stint/meter"
)

// A BlockStore is a [Store] that bans keys when it is asked to.
type BlockStore interface {
	Store
	// Block bans each key for d from now on, under those of its limits that have a ban. A ban
	// that lasts longer stays. A d of 0 ends bans. The error matches [ErrFull] if there is no
	// room for one of the bans.
	Block(ctx context.Context, layers []Layer, d time.Duration) error
}

// Block bans key for d, above 0 and at most 3,650 days: from the moment at which the store
// does it, every request of the key is denied for so long. A ban that lasts longer stays as it
// is. Who waits for the key waits on. What the key has used stays.
//
// It needs a limit with a ban ([Limit.WithBan]). The block holds under that limit's identity:
// limits of [Limiter.With] that have no ban, or another algorithm or period, let the key pass,
// so block it by their limiters too. For keys that only Block is to ban,
// WithBan(time.Microsecond) is as good as no ban for those that are denied; callers of Wait
// lose part of the rate by it, up to a third at 1,000/s, since under a ban a late timer is not
// made up for. The error matches [ErrFull] if the store has no room for a ban.
func (l *Limiter) Block(ctx context.Context, key string, d time.Duration) error {
	if d <= 0 || d > meter.MaxBan {
		return fmt.Errorf("stint: a block of %v: it must be above 0 and at most %v", d, meter.MaxBan)
	}
	return l.block(ctx, key, d)
}

// Unblock ends a ban of key, whatever began it. What the key has used stays.
func (l *Limiter) Unblock(ctx context.Context, key string) error { return l.block(ctx, key, 0) }

func (l *Limiter) block(ctx context.Context, key string, d time.Duration) error {
	layers, err := l.overTime(key)
	s, ok := l.store.(BlockStore)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("stint: the store of %q cannot block: it is no BlockStore", l.Name())
	case !l.stand(l.terms.Load()).bans:
		return fmt.Errorf("stint: no limit of %q has a ban, so none can block: Limit.WithBan gives it one", l.Name())
	}
	defer l.lines.RoomMade(at(key))
	return s.Block(ctx, layers, d)
}
