package grpclimit

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"
)

type policyGuard struct {
	current func() *policy.Policy
	o       *Options
	by      request.Interfaces
	results sync.Pool                // of *policy.Result
	looked  atomic.Pointer[lookedAt] // of the last rules
}

// lookedAt is what rules that are not in shadow look at in a call.
type lookedAt struct {
	rules    *policy.Rules
	metadata []string // names
	path     bool
	parts    bool // they look at the service or the method
}

func (b *policyGuard) of(rules *policy.Rules) *lookedAt {
	l := b.looked.Load()
	if l != nil && l.rules == rules {
		return l
	}
	l = &lookedAt{rules: rules}
	for _, attribute := range rules.Enforced() {
		a := request.Of(attribute)
		if name, line := a.Line(); line {
			l.metadata = append(l.metadata, name)
		}
		l.path = l.path || a.Kind == request.Path
		l.parts = l.parts || a.Kind == request.GRPCService || a.Kind == request.GRPCMethod
	}
	b.looked.Store(l)
	return l
}

// fault returns an error if a handler may read differently what rules look at: metadata that
// comes twice, of which rules take the first value and the handler maybe the last; or a
// method in another spelling, which grpc passes as it was sent to its handler of unknown
// services.
func (l *lookedAt) fault(ctx context.Context, method string) error {
	for _, name := range l.metadata {
		if len(metadata.ValueFromIncomingContext(ctx, name)) > 1 {
			return &policy.RequestError{Attribute: "header." + name, Reason: "it comes more than once"}
		}
	}
	if l.path {
		if clean, err := policy.CleanPath(method); err != nil || clean != method {
			return &policy.RequestError{Attribute: "path", Reason: wantMethod}
		}
	}
	if service, name, ok := split(method); l.parts && (!ok || service == "" || name == "" || strings.Contains(service, "/")) {
		return &policy.RequestError{Attribute: "grpc.service", Reason: wantMethod}
	}
	return nil
}

const wantMethod = "want /package.Service/Method, as programs write it"

// split returns the service and the method, as grpc does.
func split(method string) (service, name string, ok bool) {
	at := strings.LastIndexByte(method, '/')
	if at <= 0 {
		return "", "", false
	}
	return method[1:at], method[at+1:], true
}

func (b *policyGuard) decide(ctx context.Context, c Call, message bool) (*answer, error) {
	p := b.current()
	if err := b.of(p.Rules()).fault(ctx, c.Method); err != nil {
		return nil, err
	}
	r, ok := b.results.Get().(*policy.Result)
	if !ok {
		r = new(policy.Result)
	}
	r.WillRelease = !message // a message has no end of its own
	attrs, cost := &attributes{ctx, b.o, b.by, c.Method, message}, b.o.cost(ctx, c)
	pending, waited, err := b.ask(ctx, p, attrs, cost, r)
	if err != nil {
		b.results.Put(r)
		return nil, err
	}
	a := &answer{decision: r.Decision, tightest: -1, waited: waited, storeError: r.StoreError, rules: r, end: r.Release(), done: func() { b.results.Put(r) }}
	if pending != nil {
		a.settle, a.looks = b.settleRules(pending, cost), b.o.Settle != nil || pending.LooksAtFields()
	}
	b.tell(a, r)
	return a, nil
}

// ask asks the policy, and returns when the call may start. pending settles what the charge
// still owes to the end of the call.
func (b *policyGuard) ask(ctx context.Context, p *policy.Policy, attrs *attributes, cost int64, r *policy.Result) (pending *policy.Pending, waited time.Duration, err error) {
	most := b.o.MaxWait
	if b.o.Shadow {
		most = -1
	}
	switch {
	case !attrs.message:
		pending, waited, err = p.Begin(ctx, attrs, cost, b.o.Settle != nil, most, r)
	case most < 0:
		err = p.Decide(ctx, attrs, cost, r)
	default:
		waited, err = p.Wait(ctx, attrs, cost, most, r)
	}
	return pending, waited, err
}

// tell writes into the answer what the rules say of a call.
func (b *policyGuard) tell(a *answer, r *policy.Result) {
	for i := range r.Rules {
		e := &r.Rules[i]
		if e.Shadow {
			continue
		}
		if e.Denied {
			a.violated = append(a.violated, e.Label)
			if !e.Hidden() {
				a.told = append(a.told, e.Label)
			}
			a.never = a.never || e.Action != "" && e.Failed == policy.NotFailed
			a.closed = a.closed || e.Failed == policy.FailClosed
		}
		if e.Action != "" || e.Limit.InFlight() {
			continue
		}
		if i == r.Tightest {
			a.key = r.Key(i)
		}
		if e.Hidden() {
			continue
		}
		if i == r.Tightest {
			a.tightest = len(a.limits)
		}
		a.limits = append(a.limits, limitAnswer{e.Label, e.Fields(), e.ResetAfter, 1})
	}
}

type attributes struct {
	ctx     context.Context
	o       *Options
	by      request.Interfaces
	method  string
	message bool
}

var _ policy.Attributes = (*attributes)(nil)

// Interface returns the interface by which calls come: see [policy.Attributes].
func (a *attributes) Interface() request.Interfaces { return a.by }

// Attribute implements [policy.Attributes].
func (a *attributes) Attribute(name string) (string, bool) {
	asked := request.Of(name)
	switch asked.Kind {
	case request.Method:
		return "POST", true
	case request.Path:
		return a.method, true
	case request.Host, request.HostHeader:
		return metadataValue(a.ctx, ":authority")
	case request.IP:
		addr, ok := a.o.Address(a.ctx)
		return addr.String(), ok
	case request.GRPCService:
		service, _, ok := split(a.method)
		return service, ok
	case request.GRPCMethod:
		_, method, ok := split(a.method)
		return method, ok
	case request.GRPCMessage:
		if a.message {
			return "true", true
		}
		return "", false
	}
	if header, ok := asked.Line(); ok {
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
