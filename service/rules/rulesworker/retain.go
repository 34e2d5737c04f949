package rulesworker

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/stint-dev/stint/internal/aside"
	"github.com/stint-dev/stint/rulesdb"
)

const (
	// retainEvery is how often old rows are looked for.
	retainEvery = 6 * time.Hour
	// retainWithin bounds the time of one prune.
	retainWithin = 10 * time.Minute
	// retainDoubt is how far the database's clock may differ from this machine's. A wrong clock
	// would make the whole audit look old.
	retainDoubt = time.Hour
)

// A Retainer removes from a database what a retention does not keep. All fields are required except
// Every.
type Retainer struct {
	From *rulesdb.DB
	Keep rulesdb.Retention
	// Name is the name of this process, in the audit and for the lease.
	Name string
	// Every is how often it prunes. The default value is 6 hours.
	Every time.Duration
	// Log receives what was removed, and failures.
	Log *slog.Logger

	said string
}

// Run prunes now and then until ctx ends. A lease in the database makes sure that one process at a
// time does. If its database user may not prune, it logs that only once.
func (r *Retainer) Run(ctx context.Context) {
	if r.Every <= 0 {
		r.Every = retainEvery
	}
	for aside.Sleep(ctx, rand.N(r.Every/100+1)); ctx.Err() == nil; aside.Sleep(ctx, r.Every) {
		err := r.once(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != r.said {
			r.said = err.Error()
			r.Log.Info("retention: nothing is removed from the database here", "error", err)
		}
	}
}

func (r *Retainer) once(ctx context.Context) error {
	const lease = "retention"
	ctx, stop := context.WithTimeout(ctx, retainWithin)
	defer stop()
	held, err := r.From.Lease(ctx, lease, r.Name, r.Every)
	if err != nil || !held {
		return err
	}
	ahead, _, err := r.From.Clock(ctx)
	if err == nil && ahead.Abs() > retainDoubt {
		err = fmt.Errorf("the database's clock is %v from this machine's: one of them is wrong", ahead.Round(time.Minute))
	}
	var gone rulesdb.Pruned
	if err == nil {
		gone, err = r.From.Prune(ctx, r.Name, r.Keep)
	}
	if gone != (rulesdb.Pruned{}) {
		r.Log.Info("retention: removed from the database", "what", gone.String())
	}
	if err != nil {
		_ = r.From.Release(context.WithoutCancel(ctx), lease, r.Name) // another process may be able to
	}
	return err
}
