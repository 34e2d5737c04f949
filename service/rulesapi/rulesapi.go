// Package rulesapi is the API with which operators change rules and the limits of customers. It
// checks changes before they are written, defines their text and JSON, and has the HTTP API and its
// client.
//
// A [Backend] keeps rules: a database, or a server that has one, see [Dial]. An [Editor] is a
// Backend that refuses what nodes could not use.
package rulesapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules"
)

var (
	// ErrUnkept says that an act could not be recorded, and so was not done.
	ErrUnkept = errors.New("it cannot be kept")
	// ErrUnaudited says that an act was done and that the audit records its beginning, but perhaps
	// not its result.
	ErrUnaudited = errors.New("it is done, and the audit may have only that it was begun: look there, and do not repeat it")
)

// A Backend keeps rules, overrides, tokens and the audit. Its methods are those of [rulesdb.DB],
// which documents them.
type Backend interface {
	Revision(ctx context.Context, number int64) (rulesdb.Revision, error)
	Revisions(ctx context.Context, before int64, n int) ([]rulesdb.Revision, error)
	Publish(ctx context.Context, parent int64, r rulesdb.Revision) (rulesdb.Revision, error)
	Rollback(ctx context.Context, parent, to int64, author, comment string) (rulesdb.Revision, error)
	Accept(ctx context.Context, author, reason string) error

	Override(ctx context.Context, rule, key string) (rulesource.Override, error)
	Overrides(ctx context.Context, p rulesdb.Page) ([]rulesource.Override, error)
	SetOverride(ctx context.Context, o rulesource.Override, lasts time.Duration) (was, now rulesource.Override, err error)
	SetOverrideIf(ctx context.Context, o rulesource.Override, lasts time.Duration, may func(held rulesource.Override) error) (was, now rulesource.Override, err error)

	Plan(ctx context.Context, attribute, value string) (rulesource.Plan, error)
	Plans(ctx context.Context, attribute string, after rulesource.Plan, n int) ([]rulesource.Plan, error)
	SetPlan(ctx context.Context, attribute, value, plan, author, reason string) (was string, err error)

	Nodes(ctx context.Context, within time.Duration) ([]rulesdb.Node, error)
	Audit(ctx context.Context, before int64, n int) ([]rulesdb.AuditEntry, error)
	Note(ctx context.Context, a rulesdb.Act) error
	NoteAct(ctx context.Context, a rulesdb.Act, do func(ctx context.Context, a *rulesdb.Act) error) error
	NoteUndo(ctx context.Context, act int64, do func(ctx context.Context, at time.Time) (rulesdb.Act, error)) error
	UndoOverrides(ctx context.Context, act int64, author string) (did string, err error)
	NewToken(ctx context.Context, author, name string, role rulesdb.Role, lasts time.Duration) (string, error)
	RevokeToken(ctx context.Context, author, name string) error
	Tokens(ctx context.Context) ([]rulesdb.Token, error)

	String() string
	Close() error
}

// maxLimits is how many limits an override may have, as a rule may.
const maxLimits = 16

// An Editor is a [Backend] that checks changes. It may be used from many goroutines at once.
type Editor struct {
	Backend
	check  func(name string, document []byte) (*rules.File, error)
	secret []byte

	reading chan struct{} // has one slot, since one caller reads the document in force
	held    atomic.Pointer[heldRules]
}

// heldRules are rules that were read, and the hash of their document.
type heldRules struct {
	hash string
	file *rules.File
}

// New returns an editor. check parses a document as nodes do and says what is wrong in it; secret
// is the secret with which nodes hash keys, if they do.
func New(k Backend, check func(name string, document []byte) (*rules.File, error), secret []byte) *Editor {
	return &Editor{Backend: k, check: check, secret: secret, reading: make(chan struct{}, 1)}
}

// Check parses a document as nodes do.
func (d *Editor) Check(name string, document []byte) (*rules.File, error) {
	return d.check(name, document)
}

// Publish refuses a document that nodes could not use.
func (d *Editor) Publish(ctx context.Context, parent int64, r rulesdb.Revision) (rulesdb.Revision, error) {
	if _, err := d.check(r.Name, r.Document); err != nil {
		return rulesdb.Revision{}, err
	}
	return d.Backend.Publish(ctx, parent, r)
}

// Rollback refuses a revision that nodes can no longer use.
func (d *Editor) Rollback(ctx context.Context, parent, to int64, author, comment string) (rulesdb.Revision, error) {
	r, err := d.Revision(ctx, to)
	if err != nil {
		return r, err
	}
	if _, err := d.check(r.Name, r.Document); err != nil {
		return rulesdb.Revision{}, err
	}
	return d.Backend.Rollback(ctx, parent, to, author, comment)
}

// Rules returns the rules in force. The error is [rulesource.ErrEmpty] if there are none. One
// caller reads a new document, while others wait for it as long as their contexts last.
func (d *Editor) Rules(ctx context.Context) (*rules.File, error) {
	newest, err := d.Revisions(ctx, 0, 1)
	if err != nil {
		return nil, err
	}
	if len(newest) == 0 {
		return nil, rulesource.ErrEmpty
	}
	if f := d.holds(newest[0].Hash); f != nil {
		return f, nil
	}
	select {
	case d.reading <- struct{}{}:
		defer func() { <-d.reading }()
	case <-ctx.Done():
		return nil, fmt.Errorf("another one reads the rules: %w", context.Cause(ctx))
	}
	if f := d.holds(newest[0].Hash); f != nil {
		return f, nil
	}
	r, err := d.Revision(ctx, newest[0].Number)
	if err != nil {
		return nil, err
	}
	f, err := rules.Decode(r.Name, r.Document)
	if err != nil {
		return nil, err
	}
	d.held.Store(&heldRules{r.Hash, f})
	return f, nil
}

// holds returns the rules that were read last, if they have this hash.
func (d *Editor) holds(hash string) *rules.File {
	if held := d.held.Load(); held != nil && held.hash == hash {
		return held.file
	}
	return nil
}

// SetOverride refuses limits that cannot be parsed, and rules that are not in force. An override
// may be removed even if its rule is gone.
func (d *Editor) SetOverride(ctx context.Context, o rulesource.Override, lasts time.Duration) (was, now rulesource.Override, err error) {
	if !o.Removed {
		if err := d.checkOverride(ctx, &o); err != nil {
			return was, now, err
		}
	}
	return d.Backend.SetOverride(ctx, o, lasts)
}

// SetOverrideIf makes the checks of [Editor.SetOverride].
func (d *Editor) SetOverrideIf(ctx context.Context, o rulesource.Override, lasts time.Duration, may func(held rulesource.Override) error) (was, now rulesource.Override, err error) {
	if !o.Removed {
		if err := d.checkOverride(ctx, &o); err != nil {
			return was, now, err
		}
	}
	return d.Backend.SetOverrideIf(ctx, o, lasts, may)
}

// Unblock removes the block of o's key under its rule, and returns it. An override of another kind
// stays, even one that was set just before: the error is an [InputError] or that of the server. A
// server also ends the bans of the key, and reports that.
func (d *Editor) Unblock(ctx context.Context, o rulesource.Override) (was, now rulesource.Override, banEnded bool, err error) {
	if k, ok := d.Backend.(*Client); ok {
		return k.unblock(ctx, o)
	}
	if err := rulesdb.CheckReason(o.Reason); err != nil {
		return was, now, false, err
	}
	o.Removed = true
	was, now, err = d.SetOverrideIf(ctx, o, 0, func(held rulesource.Override) error {
		if !held.Block && !held.Removed {
			return &InputError{"key", fmt.Errorf("it is not blocked: it has %s; stint override remove ends that", rulesdb.Describe(&held))}
		}
		return nil
	})
	return was, now, false, err
}

func (d *Editor) checkOverride(ctx context.Context, o *rulesource.Override) error {
	f, err := d.Rules(ctx)
	if err != nil {
		return err
	}
	return checkIn(f, o)
}

// checkIn refuses an override that the rules cannot use.
func checkIn(f *rules.File, o *rulesource.Override) error {
	switch limited, _, err := f.Rules.Overridable(o.Rule); {
	case err != nil:
		return &InputError{"rule", unknownRule(o.Rule, f.Rules.Names())}
	case !limited:
		what := "an override"
		if o.Block {
			what = "a block"
		}
		return &InputError{"rule", fmt.Errorf("%s has no limits, so %s under it would do nothing: name another rule", o.Rule, what)}
	}
	if len(o.Limits) > maxLimits {
		return &InputError{"limits", fmt.Errorf("%d limits: at most %d", len(o.Limits), maxLimits)}
	}
	limits := make([]stint.Limit, len(o.Limits))
	for i, text := range o.Limits {
		var err error
		if limits[i], err = stint.Parse(text); err != nil {
			return &InputError{"limits", err}
		}
		same := func(l stint.Limit) bool { return l.ID() == limits[i].ID() }
		if at := slices.IndexFunc(limits[:i], same); at >= 0 {
			return &InputError{"limits", fmt.Errorf("%s and %s are of one kind and period (%s): a customer has one of each", o.Limits[at], text, limits[i].ID())}
		}
	}
	return nil
}

// Note says what keeps overrides of a rule from their effect, such as "does nothing: the rule has no
// limits"; "" if nothing does. Rules may have changed since an override was set.
func Note(r *policy.Rules, rule string) string {
	switch limited, shadow, err := r.Overridable(rule); {
	case err != nil:
		return "does nothing: no rule has this name now"
	case !limited:
		return "does nothing: the rule has no limits"
	case shadow:
		return "denies nobody: the rule is in shadow"
	}
	return ""
}

// Noted returns [OverrideOf] with the Note by the rules in force now, if these can be read.
func (d *Editor) Noted(ctx context.Context) func(o rulesource.Override) *Override {
	f, err := d.Rules(ctx)
	return func(o rulesource.Override) *Override {
		j := OverrideOf(o)
		if j != nil && err == nil {
			j.Note = Note(f.Rules, o.Rule)
		}
		return j
	}
}

// Usual says whose limits hold for a key that has no override of its own, such as "the limits of
// tier pro".
func (d *Editor) Usual(ctx context.Context, rule, key string) string {
	f, err := d.Rules(ctx)
	if err != nil {
		return "the rule's limits"
	}
	switch limits := d.usual(ctx, f, rule, key); {
	case limits == nil:
		return "the limits by the rules"
	case limits[0].Variant == "":
		return "the rule's own limits"
	default:
		return "the limits of " + variant(limits)
	}
}

// usual returns the limits, or the action, of a key that has no override of its own; none if that is
// not known from the key.
func (d *Editor) usual(ctx context.Context, f *rules.File, rule, key string) []*policy.RuleLimit {
	attrs, _ := f.Rules.AttributesOf(rule, key)
	tier := ""
	for _, one := range f.Rules.File().Rules() {
		if value := ""; one.Name == rule && one.Tiers != nil {
			if value = attrs[one.Tiers.By.Name]; value == "" {
				break
			}
			p, err := d.Plan(ctx, one.Tiers.By.Name, value)
			if err != nil && !errors.Is(err, rulesdb.ErrNotFound) {
				return nil
			}
			tier = p.Plan
		}
	}
	return f.Rules.LimitsOf(rule, attrs, tier)
}

// variant names the plan of limits.
func variant(limits []*policy.RuleLimit) string {
	switch v := limits[0].Variant; v {
	case "":
		return "the rule"
	case "override":
		return "an override in the rules"
	default:
		return v
	}
}

// Consequences says what an override changes beside the numbers: which limits that the rules have for
// the customer are less or no longer apply, which of the customer's own begin with nothing used
// because the rules have none of their kind and period, and that a rule in shadow denies nobody. It
// is "" for nothing.
func (d *Editor) Consequences(ctx context.Context, o rulesource.Override) string {
	f, err := d.Rules(ctx)
	if err != nil || o.Removed {
		return ""
	}
	text := ""
	if len(o.Limits) > 0 {
		text = consequences(d.usual(ctx, f, o.Rule, o.Key), &o)
	}
	if note := Note(f.Rules, o.Rule); note != "" {
		text = strings.TrimSpace("It " + note + ". " + text)
	}
	return text
}

const unheld = "/v1/check, /auth and Envoy's protocol refuse this customer from now on, since they do not learn when a request ends."

// consequences says what the limits of an override change, in place of the usual ones.
func consequences(usual []*policy.RuleLimit, o *rulesource.Override) string {
	switch {
	case usual == nil:
		return "It takes the place of all limits that the customer has by tier or by an override in the rules."
	case usual[0].Action == "block" && usual[0].Variant != "":
		return "It takes the place of " + variant(usual) + ", which denies the customer."
	case usual[0].Action != "" && usual[0].Variant != "":
		return "It takes the place of " + variant(usual) + ", by which the customer is unlimited."
	case usual[0].Action != "":
		return ""
	}
	var rule []stint.Limit
	for _, l := range usual {
		rule = append(rule, l.Limit)
	}
	own := parsed(o.Limits)
	var parts []string
	gone, less := without(rule, own)
	if len(gone) > 0 {
		parts = append(parts, "For this customer, these limits of "+variant(usual)+" hold no longer: "+strings.Join(gone, ", ")+".")
	}
	if len(less) > 0 {
		parts = append(parts, "It gives less than "+variant(usual)+": "+strings.Join(less, ", ")+".")
	}
	if anew, _ := without(own, rule); len(anew) > 0 {
		parts = append(parts, "These begin with nothing used, since "+variant(usual)+" has none of that kind and period: "+strings.Join(anew, ", ")+".")
	}
	for _, l := range rule {
		if at := counterpart(l, own); at >= 0 && owes(own[at]) < l.Debt() {
			parts = append(parts, fmt.Sprintf("What responses cost above what was reserved is charged down to a debt of %d in place of %d: write debt %[2]d to keep that.", owes(own[at]), l.Debt()))
		}
	}
	if slices.ContainsFunc(own, stint.Limit.InFlight) && !slices.ContainsFunc(rule, stint.Limit.InFlight) {
		parts = append(parts, unheld)
	}
	return strings.Join(parts, " ")
}

// parsed returns limits that were checked.
func parsed(texts []string) (all []stint.Limit) {
	for _, text := range texts {
		if l, err := stint.Parse(text); err == nil {
			all = append(all, l)
		}
	}
	return all
}

// without returns the limits that have no counterpart of the same kind and period in others, and
// those whose counterpart gives less, with it.
func without(limits, others []stint.Limit) (texts, less []string) {
	for _, l := range limits {
		at := counterpart(l, others)
		switch {
		case at < 0:
			texts = append(texts, l.String())
		case others[at].Count() < l.Count() || others[at].Capacity() < l.Capacity():
			less = append(less, others[at].String()+" in place of "+l.String())
		}
	}
	return texts, less
}

// counterpart returns the index of the limit of the same kind and period; -1 if there is none.
func counterpart(l stint.Limit, others []stint.Limit) int {
	return slices.IndexFunc(others, func(o stint.Limit) bool { return o.WithName("").ID() == l.WithName("").ID() })
}

// owes returns how many units below empty a bucket can be.
func owes(l stint.Limit) int64 { return cmp.Or(l.Debt(), l.Capacity()) }

// HasRule returns an error that lists the existing rules if there is no such rule in force.
func (d *Editor) HasRule(ctx context.Context, rule string) error {
	f, err := d.Rules(ctx)
	if err != nil || slices.Contains(f.Rules.Names(), rule) {
		return err
	}
	return &InputError{"rule", unknownRule(rule, f.Rules.Names())}
}

// unknownRule returns an error that lists the existing rules.
func unknownRule(name string, names []string) error {
	return noRule(fmt.Sprintf("there is no rule %q in force: there are %s", name, listed(names)))
}

// listed returns the first names, in quotes.
func listed(names []string) string {
	const most = 10
	var b strings.Builder
	for i, name := range names[:min(most, len(names))] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(name))
	}
	if len(names) > most {
		fmt.Fprintf(&b, " and %d more", len(names)-most)
	}
	return cmp.Or(b.String(), "none")
}

// A noRule is a [policy.ErrNoRule] that lists the existing rules.
type noRule string

func (e noRule) Error() string { return string(e) }

func (noRule) Is(target error) bool { return target == policy.ErrNoRule }

// An InputError names the field of a request that is wrong.
type InputError struct {
	Field string
	Err   error
}

// Error names the field.
func (e *InputError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *InputError) Unwrap() error { return e.Err }

// Is makes an InputError match [rulesdb.ErrInput].
func (e *InputError) Is(target error) bool { return target == rulesdb.ErrInput }

// InForce returns the revision in force, or the zero Revision if there is none.
func InForce(ctx context.Context, k Backend) (rulesdb.Revision, error) {
	r, err := k.Revision(ctx, 0)
	if errors.Is(err, rulesdb.ErrNotFound) {
		return rulesdb.Revision{}, nil
	}
	return r, err
}
