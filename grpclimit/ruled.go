package grpclimit

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/stint-dev/stint/policy"
)

// ruled decides by the rules of a policy.
type ruled struct {
	current func() *policy.Policy
	o       *Options
	results sync.Pool // of *policy.Result
}

// giveUpWithin bounds giving back for a call that has gone.
const giveUpWithin = 5 * time.Second

func (b *ruled) decide(ctx context.Context, c Call, message bool) (*answer, error) {
	r, ok := b.results.Get().(*policy.Result)
	if !ok {
		r = new(policy.Result)
	}
	p := b.current()
	err := p.Decide(ctx, &attributes{ctx, b.o, c.Method, message}, b.o.cost(ctx, c), r)
	var waited time.Duration
	if err == nil {
		waited, err = b.await(ctx, p, r)
	}
	if err != nil {
		b.results.Put(r)
		return nil, err
	}
	a := &answer{decision: r.Decision, tightest: -1, waited: waited, storeError: r.StoreError, rules: r, done: func() { b.results.Put(r) }}
	for i := range r.Rules {
		e := &r.Rules[i]
		if e.Shadow {
			continue
		}
		if e.Denied {
			a.violated = append(a.violated, e.Label)
			a.never = a.never || e.Action != ""
			a.closed = a.closed || e.Failed == policy.FailClosed
		}
		if e.Action != "" {
			continue
		}
		if i == r.Tightest {
			a.tightest, a.key = len(a.held), r.Key(i)
		}
		a.held = append(a.held, held{e.Label, e.Limit, e.ResetAfter})
	}
	return a, nil
}

// await returns when an allowed call's turn has come under a leaky_queue. What
// would wait too long, or gives up, gives back what it took.
func (b *ruled) await(ctx context.Context, p *policy.Policy, r *policy.Result) (time.Duration, error) {
	d := &r.Decision
	if !d.Allowed || d.Delay <= 0 || b.o.Shadow || b.o.MaxWait < 0 {
		return 0, nil
	}
	most := b.o.MaxWait
	if deadline, ok := ctx.Deadline(); ok && (most <= 0 || time.Until(deadline) < most) {
		most = max(time.Until(deadline), 1)
	}
	if most > 0 && d.Delay > most {
		if err := p.GiveBack(ctx, r); err != nil {
			return 0, err
		}
		*d = tooLong(*d, most)
		if at := r.Tightest; at >= 0 {
			r.Rules[at].Denied, r.Rules[at].RetryAfter = true, d.RetryAfter
		}
		return 0, nil
	}
	began := time.Now()
	turn := time.NewTimer(d.Delay)
	defer turn.Stop()
	select {
	case <-turn.C:
		return time.Since(began), nil
	case <-ctx.Done():
		bound, stop := context.WithTimeout(context.WithoutCancel(ctx), giveUpWithin)
		defer stop()
		if err := p.GiveBack(bound, r); err != nil {
			return 0, err
		}
		return 0, ctx.Err()
	}
}

// attributes are what is known of a call, by the names of rules.
type attributes struct {
	ctx     context.Context
	o       *Options
	method  string
	message bool
}

var _ policy.Attributes = (*attributes)(nil)

// Attribute implements [policy.Attributes].
func (a *attributes) Attribute(name string) (string, bool) {
	switch name {
	case "method":
		return "POST", true
	case "path":
		return a.method, true
	case "host", "header.host":
		return metadataValue(a.ctx, ":authority")
	case "ip":
		addr, ok := a.o.Address(a.ctx)
		return addr.String(), ok
	case "grpc.service":
		service, _, ok := strings.Cut(strings.TrimPrefix(a.method, "/"), "/")
		return service, ok
	case "grpc.method":
		_, method, ok := strings.Cut(strings.TrimPrefix(a.method, "/"), "/")
		return method, ok
	case "grpc.message":
		if a.message {
			return "true", true
		}
		return "", false
	}
	if header, ok := strings.CutPrefix(name, "header."); ok {
		values := metadata.ValueFromIncomingContext(a.ctx, header)
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	}
	if a.o.Attribute != nil {
		return a.o.Attribute(a.ctx, a.method, name)
	}
	return "", false
}
