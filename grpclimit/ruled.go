package grpclimit

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/stint-dev/stint/policy"
)

// policyGuard decides by the rules of a policy.
type policyGuard struct {
	current func() *policy.Policy
	o       *Options
	results sync.Pool                // of *policy.Result
	names   atomic.Pointer[metaRead] // of the last rules
}

// metaRead is the names of metadata that rules look at.
type metaRead struct {
	rules *policy.Rules
	names []string
}

// repeated returns the error of a call with metadata that rules look at and that comes
// twice: they would go by the first value, and the handler maybe by the last.
func (b *policyGuard) repeated(ctx context.Context, rules *policy.Rules) error {
	read := b.names.Load()
	if read == nil || read.rules != rules {
		read = &metaRead{rules: rules}
		for _, attribute := range rules.Attributes() {
			if name, ok := strings.CutPrefix(attribute, "header."); ok && name != "host" {
				read.names = append(read.names, name)
			}
		}
		b.names.Store(read)
	}
	for _, name := range read.names {
		if len(metadata.ValueFromIncomingContext(ctx, name)) > 1 {
			return &policy.RequestError{Attribute: "header." + name, Reason: "it comes more than once"}
		}
	}
	return nil
}

func (b *policyGuard) decide(ctx context.Context, c Call, message bool) (*answer, error) {
	p := b.current()
	if err := b.repeated(ctx, p.Rules()); err != nil {
		return nil, err
	}
	r, ok := b.results.Get().(*policy.Result)
	if !ok {
		r = new(policy.Result)
	}
	attrs, cost := &attributes{ctx, b.o, c.Method, message}, b.o.cost(ctx, c)
	var waited time.Duration
	var err error
	if b.o.Shadow || b.o.MaxWait < 0 {
		err = p.Decide(ctx, attrs, cost, r)
	} else {
		waited, err = p.Wait(ctx, attrs, cost, b.o.MaxWait, r)
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
			a.tightest, a.key = len(a.limits), r.Key(i)
		}
		a.limits = append(a.limits, limitAnswer{e.Label, e.Limit, e.ResetAfter, 1})
	}
	return a, nil
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
