package moving

import (
	"context"

	"golang.org/x/time/rate"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

func xtimeBefore(ctx context.Context, job func()) error {
	limiter := rate.NewLimiter(10, 3)
	if !limiter.Allow() {
		return errBusy
	}
	if err := limiter.WaitN(ctx, 3); err != nil {
		return err
	}
	job()
	return nil
}

func xtimeAfter(ctx context.Context, job func()) error {
	limiter, err := memstore.NewSingle(stint.PerSecond(10).WithBurst(3), memstore.SingleOptions{})
	if err != nil {
		return err
	}
	if !limiter.Allow() {
		return errBusy
	}
	if err := limiter.Wait(ctx, 3); err != nil {
		return err
	}
	job()
	return nil
}
