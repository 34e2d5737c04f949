package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules"
)

// readWithin is how long a source of rules may take to hand over a document.
const readWithin = 10 * time.Second

// readFlags say where the rules are, for commands that only read them.
type readFlags struct {
	Rules             string `env:"STINT_RULES" instead:"rules" placeholder:"URL" help:"Where the rules are, instead of in a file, as for stint serve: sqlite:FILE, postgres://…, mysql://…, redis://…, dir:DIRECTORY or https://…"`
	RulesPasswordFile string `env:"STINT_RULES_PASSWORD_FILE" placeholder:"FILE" help:"A file with the password of the database or Redis, or the token for an https URL."`
}

// source opens the source that --rules names. Close what it returns.
func (c *readFlags) source(ctx context.Context) (*ruleSource, error) {
	if err := existing(c.Rules); err != nil {
		return nil, err
	}
	return (&databaseFlags{Rules: c.Rules, RulesPasswordFile: c.RulesPasswordFile}).openSource(ctx, "", nil)
}

// document reads the rules in force.
func (c *readFlags) document(e *env) (name string, document []byte, err error) {
	s, err := c.source(e.ctx)
	if err != nil {
		return "", nil, err
	}
	defer s.Close() // it has only read
	read, err := rules.ReadDocument(e.ctx, s, readWithin)
	if errors.Is(err, rulesource.ErrEmpty) {
		err = fmt.Errorf("%s: %w", s.name, err)
	}
	if err != nil {
		return "", nil, err
	}
	return read.Name, read.Document, nil
}

// withOwn explains a request by rules, with the customer's own limits and plan.
func (c *explainCmd) withOwn(e *env, f *rules.File, request policy.Attributes) (x policy.Explanation, err error) {
	secret, err := readSecret(c.SecretFile)
	if err != nil {
		return x, err
	}
	s, err := c.source(e.ctx)
	if err != nil {
		return x, err
	}
	defer s.Close() // it has only read
	store := memstore.New(memstore.Options{MaxKeys: 1})
	defer store.Close()
	binding := secret
	if binding == nil {
		binding = make([]byte, 16) // any secret will do: without the right one, hashed keys stay unknown
	}
	p, err := policy.New(store, f.Rules, policy.Options{Secret: binding})
	if err != nil {
		return x, err
	}
	defer p.Close()
	own := newOwn(f.Rules, p, request, secret)
	if db, ok := s.Source.(*rulesdb.DB); ok {
		err = own.load(e.ctx, db)
	} else {
		_, err = s.Load(e.ctx, rulesource.Version{}, own)
	}
	if err != nil {
		return x, err
	}
	return p.Explain(request)
}

// An own is a [rulesource.Receiver] that applies the overrides and the plan of one
// customer to a policy, and ignores those of all others.
type own struct {
	policy *policy.Policy
	keys   map[string]string // the customer's keys, by rule
	values map[string]string // the values of attributes that select tiers, by attribute
}

func newOwn(r *policy.Rules, p *policy.Policy, request policy.Attributes, secret []byte) *own {
	o := &own{p, make(map[string]string), make(map[string]string)}
	for _, name := range r.Names() {
		if key, err := r.KeyOf(name, request, secret); err == nil { // else the request has no key under this rule
			o.keys[name] = key
		}
	}
	for _, name := range r.TierAttributes() {
		if value, ok := request.Attribute(name); ok {
			o.values[name] = value
		}
	}
	return o
}

// load reads the customer's overrides and plan from a database.
func (o *own) load(ctx context.Context, db *rulesdb.DB) error {
	for rule, key := range o.keys {
		one, err := db.Override(ctx, rule, key)
		if err == nil {
			err = o.Override(&one)
		}
		if err != nil && !errors.Is(err, rulesdb.ErrNotFound) {
			return err
		}
	}
	for attribute, value := range o.values {
		one, err := db.Plan(ctx, attribute, value)
		if err == nil {
			err = o.Plan(&one)
		}
		if err != nil && !errors.Is(err, rulesdb.ErrNotFound) {
			return err
		}
	}
	return nil
}

// Begin implements [rulesource.Receiver].
func (o *own) Begin(*rulesource.Snapshot, bool) error { return nil }

// Override implements [rulesource.Receiver].
func (o *own) Override(one *rulesource.Override) error {
	if key, ok := o.keys[one.Rule]; !ok || key != one.Key {
		return nil
	}
	return rules.SetOverride(o.policy, one)
}

// Plan implements [rulesource.Receiver].
func (o *own) Plan(p *rulesource.Plan) error {
	if value, ok := o.values[p.Attribute]; !ok || value != p.Value {
		return nil
	}
	return o.policy.SetPlan(p.Attribute, p.Value, p.Plan)
}
