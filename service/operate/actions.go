package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rulesapi"
)

// The names of acts in the audit. Those of overrides are rulesdb's.
const (
	actReset   = "reset"
	actRefund  = "refund"
	actCharge  = "charge" // what undoes both
	actSet     = "override set"
	actRemoved = "override remove"
)

// An Act says what was done.
type Act struct {
	Rule    string `json:"rule"`
	Key     string `json:"key"`
	KeyHash string `json:"key_hash"`
	Did     string `json:"did"`
	Undone  int64  `json:"undone,omitzero"` // the number of the act that was taken back
}

// customer returns the rule and the key that a query names.
func (s *Service) customer(r *rulesapi.Request) (rule, key string, err error) {
	if rule = r.Query.Get("rule"); rule == "" {
		return "", "", &rulesapi.InputError{Field: "rule", Err: errors.New("missing")}
	}
	key, err = s.o.Editor.Key(r.Context, rule, rulesapi.Customer{Key: r.Query.Get("key"), Attributes: r.Query["attribute"]})
	return rule, key, err
}

// A charge is what a key had used of a limit, as the audit keeps it.
type charge struct {
	Label   string    `json:"label"`
	Variant string    `json:"variant,omitzero"`
	Used    int64     `json:"used"`
	At      time.Time `json:"at"`
	Until   time.Time `json:"until"` // when it would have been as if never used
}

// now returns how much of the charge would count still, about: it wears off
// evenly.
func (c *charge) now(at time.Time) int64 {
	all, left := c.Until.Sub(c.At), c.Until.Sub(at)
	if all <= 0 || left <= 0 {
		return 0
	}
	return int64(float64(c.Used)*float64(left)/float64(all) + 0.5)
}

// charges returns what a key has used, but for limits that have banned it: what it used of
// these is not known, and an undo begins no ban.
func (s *Service) charges(ctx context.Context, p *policy.Policy, rule, key string) ([]charge, error) {
	limits, err := p.UsedOf(ctx, rule, key)
	if err != nil {
		return nil, err
	}
	var all []charge
	now := time.Now().UTC()
	for i := range limits {
		if e := &limits[i]; e.Action == "" && !e.Banned && !e.Limit.InFlight() && e.Remaining >= 0 && e.Remaining < e.Limit.Capacity() {
			all = append(all, charge{e.Label, e.Variant, e.Limit.Capacity() - e.Remaining, now, now.Add(e.ResetAfter)})
		}
	}
	return all, nil
}

// reset answers POST /v1/reset: it forgets what a key has used under a rule.
func (s *Service) reset(r *rulesapi.Request) (int, any, error) {
	var body struct {
		Reason string `json:"reason"`
	}
	if err := r.Body(&body); err != nil {
		return 0, nil, err
	}
	return s.give(r, body.Reason, resets)
}

var resets = gift{actReset, "as if never used", math.MaxInt64, func(ctx context.Context, p *policy.Policy, rule, key string) error {
	return p.ResetKey(ctx, rule, key)
}}

var unbans = gift{actReset, "its ban has ended", math.MaxInt64, func(ctx context.Context, p *policy.Policy, rule, key string) error {
	return p.EndBans(ctx, rule, key)
}}

// refund answers POST /v1/refund: it gives units back to a key under a rule.
func (s *Service) refund(r *rulesapi.Request) (int, any, error) {
	var body struct {
		Cost   int64  `json:"cost"`
		Reason string `json:"reason"`
	}
	if err := r.Body(&body); err != nil {
		return 0, nil, err
	}
	if body.Cost < 1 {
		return 0, nil, &rulesapi.InputError{Field: "cost", Err: errors.New("how many units to give back: at least 1")}
	}
	return s.give(r, body.Reason, gift{actRefund, fmt.Sprintf("%d units given back", body.Cost), body.Cost, func(ctx context.Context, p *policy.Policy, rule, key string) error {
		return p.RefundKey(ctx, rule, key, body.Cost)
	}})
}

// A gift is an act that gives a key more room.
type gift struct {
	act, did string
	most     int64 // that it may give of a limit
	do       func(ctx context.Context, p *policy.Policy, rule, key string) error
}

// give does what gives a key more room, and notes what it gave. With a database, it
// is done while the audit is being written, so that it is not done without.
func (s *Service) give(r *rulesapi.Request, reason string, g gift) (int, any, error) {
	rule, key, err := s.customer(r)
	if err == nil {
		err = rulesdb.CheckReason(reason)
	}
	if err == nil {
		err = s.grant(r, rule, key, reason, g)
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, s.act(r, rule, key, g.did), nil
}

// Unban ends the bans of a key under a rule, if it has some. Where that cannot be seen,
// as while the store is away, it has none.
func (s *Service) Unban(ctx context.Context, author, rule, key, reason string) (ended bool, err error) {
	limits, _ := s.o.Source.Policy().UsedOf(ctx, rule, key)
	if !slices.ContainsFunc(limits, func(e policy.RuleResult) bool { return e.Banned }) {
		return false, nil
	}
	err = s.grant(&rulesapi.Request{Context: ctx, Author: author}, rule, key, reason, unbans)
	return err == nil, err
}

// grant is give for a key that is known.
func (s *Service) grant(r *rulesapi.Request, rule, key, reason string, g gift) error {
	var lost error // the store's, which may have done it
	done := false
	act := rulesdb.Act{Author: r.Author, Act: g.act, Subject: subject(rule, key), Reason: reason}
	err := s.o.Editor.NoteAct(r.Context, act, func(ctx context.Context, a *rulesdb.Act) (err error) {
		a.Was, lost, err = s.gave(ctx, g, rule, key)
		if a.Now = g.did; lost != nil {
			a.Now += ", perhaps: " + stint.ErrAmbiguous.Error()
		}
		done = err == nil
		return err
	})
	s.log(r, g.act, rule, key, errors.Join(lost, err))
	switch {
	case lost != nil:
		return fmt.Errorf("%w: %w", rulesdb.ErrAmbiguous, errors.Join(lost, err))
	case err != nil && done:
		return unaudited(err)
	}
	return err
}

// gave does what g says, and returns what that gave, as the audit keeps it. lost is an
// error after which it may have been done; then what it gave is not known.
func (s *Service) gave(ctx context.Context, g gift, rule, key string) (was string, lost, err error) {
	p := s.o.Source.Policy()
	before, err := s.charges(ctx, p, rule, key)
	if err != nil {
		return "", nil, err
	}
	if err := g.do(ctx, p, rule, key); errors.Is(err, stint.ErrAmbiguous) {
		return "", err, nil
	} else if err != nil {
		return "", nil, err
	}
	after, err := s.charges(ctx, p, rule, key)
	if err != nil { // it is done: as much as it can have given is taken for given
		for i := range before {
			before[i].Used = min(before[i].Used, g.most)
		}
	}
	text, err := json.Marshal(given(before, after))
	return string(text), nil, err
}

// unaudited says of an act that was done whether it was written down; err is why not.
func unaudited(err error) error {
	if errors.Is(err, rulesdb.ErrAmbiguous) {
		return fmt.Errorf("%w: %w", rulesapi.ErrUnsure, err)
	}
	return fmt.Errorf("%w: %w", rulesapi.ErrUnaudited, err)
}

// given returns what an act gave: what was used before and is not after.
func given(before, after []charge) []charge {
	for i := range before {
		at := slices.IndexFunc(after, func(c charge) bool { return c.Label == before[i].Label && c.Variant == before[i].Variant })
		if at >= 0 {
			before[i].Used = max(before[i].Used-after[at].Used, 0)
		}
	}
	return before
}

func subject(rule, key string) string { return fmt.Sprintf("%s %q", rule, key) }

// customerOf reads a subject.
func customerOf(subject string) (rule, key string, ok bool) {
	rule, quoted, ok := strings.Cut(subject, " ")
	key, err := strconv.Unquote(quoted)
	return rule, key, ok && err == nil
}

func (s *Service) act(r *rulesapi.Request, rule, key, did string) Act {
	shown, hash := s.named(rule, key, r.Clear())
	return Act{Rule: rule, Key: shown, KeyHash: hash, Did: did}
}

// log writes a line on an act, by the hash of the key.
func (s *Service) log(r *rulesapi.Request, act, rule, key string, err error) {
	_, hash := s.named(rule, key, false)
	attrs := []any{"act", act, "author", r.Author, "rule", rule, "key_hash", hash}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	s.o.Log.Info("operator", attrs...)
}

// mostUndo is how many acts back one may be that is taken back.
const mostUndo = 1000

// undo answers POST /v1/undo: it takes an act back, by default the last one.
func (s *Service) undo(r *rulesapi.Request) (int, any, error) {
	var body struct {
		Act int64 `json:"act"`
	}
	if err := r.Body(&body); err != nil {
		return 0, nil, err
	}
	u, err := undo(r.Context, s.o.Editor, r.Author, body.Act, func(d *rulesdb.AuditEntry, rule, key string) (string, error) {
		return s.undoGift(r, d, rule, key)
	})
	if u.rule != "" {
		s.log(r, "undo", u.rule, u.key, err)
	}
	if err != nil {
		return 0, nil, err
	}
	answer := s.act(r, u.rule, u.key, u.did)
	answer.Undone = u.act
	return http.StatusOK, answer, nil
}

// Undo takes an act back where no server is asked, by default the last one. It cannot
// take back a reset or a refund: what they gave is charged in a server's store.
func Undo(ctx context.Context, k *rulesapi.Editor, author string, number int64) (Act, error) {
	u, err := undo(ctx, k, author, number, func(d *rulesdb.AuditEntry, _, _ string) (string, error) {
		return "", refused("act %d, %s: what it gave is charged again by a server: name its admin address with --server", d.Number, d.Act.Act)
	})
	return Act{Rule: u.rule, Key: u.key, Did: u.did, Undone: u.act}, err
}

// An undone is an act that was taken back.
type undone struct {
	act            int64
	rule, key, did string
}

// undo takes an act back; gift takes back one that gave a key more room.
func undo(ctx context.Context, k *rulesapi.Editor, author string, number int64, gift func(d *rulesdb.AuditEntry, rule, key string) (string, error)) (u undone, err error) {
	acts, err := k.Audit(ctx, 0, mostUndo)
	if err != nil {
		return u, err
	}
	at, err := toUndo(acts, number)
	if err != nil {
		return u, err
	}
	d := &acts[at]
	rule, key, ok := customerOf(d.Subject)
	if !ok {
		return u, refused("act %d: its key is too long for the audit: set what it was before by hand", d.Number)
	}
	u = undone{act: d.Number, rule: rule, key: key}
	if d.Act.Act == actSet || d.Act.Act == actRemoved {
		u.did, err = undoOverride(ctx, k, author, d, rule, key)
	} else {
		u.did, err = gift(d, rule, key)
	}
	return u, err
}

func undoneBefore(act int64) error { return refused("act %d has been taken back already", act) }

func refused(format string, args ...any) error {
	return &rulesapi.InputError{Field: "act", Err: fmt.Errorf(format, args...)}
}

// toUndo returns which of the acts, the newest first, is to be taken back.
func toUndo(acts []rulesdb.AuditEntry, number int64) (int, error) {
	later := make(map[string]bool) // the reasons of later acts
	for i := range acts {
		d := &acts[i]
		undone := later[rulesdb.UndoOf(d.Number)]
		later[d.Reason] = true
		kind := slices.Contains([]string{actSet, actRemoved, actReset, actRefund}, d.Act.Act)
		switch {
		case number == 0 && kind && !d.Undoes() && !undone:
			return i, nil
		case number != d.Number:
		case undone:
			return 0, undoneBefore(number)
		case !kind:
			return 0, refused("act %d, %s, is none that can be taken back so: overrides, blocks, resets and refunds are; rules rollback goes back to rules of before", number, d.Act.Act)
		default:
			return i, nil
		}
	}
	if number == 0 {
		return 0, refused("there is nothing to take back")
	}
	return 0, refused("act %d is not among the last %d", number, mostUndo)
}

// undoOverride puts an override back that another one took the place of, if that
// one holds still.
func undoOverride(ctx context.Context, k *rulesapi.Editor, author string, d *rulesdb.AuditEntry, rule, key string) (string, error) {
	back, lasts, err := described(d.Was, time.Now())
	if err != nil {
		return "", err
	}
	back.Rule, back.Key, back.Author, back.Reason = rule, key, author, rulesdb.UndoOf(d.Number)
	holds := func(held rulesource.Override) error {
		switch now := rulesdb.Describe(&held); {
		case now == d.Now && (!held.Removed || !back.Removed):
			return nil
		case now == "":
			return refused("act %d has ended by itself, or was taken back", d.Number)
		default:
			return refused("act %d is not what holds any more: it is %q now, which came later", d.Number, now)
		}
	}
	if _, back, err = k.SetOverrideIf(ctx, back, lasts, holds); err != nil {
		return "", err
	}
	if back.Removed {
		return "the rule's own limits hold again", nil
	}
	return "as before: " + rulesdb.Describe(&back), nil
}

// described reads what [rulesdb.Describe] wrote, and how long it lasts from now.
// One that has ended meanwhile is Removed.
func described(text string, now time.Time) (o rulesource.Override, lasts time.Duration, err error) {
	text, until, ends := strings.Cut(text, " until ")
	if ends {
		at, err := time.Parse(time.RFC3339, until)
		if err != nil {
			return o, 0, refused("what it was before cannot be read: %q", until)
		}
		if lasts = at.Sub(now); lasts <= 0 {
			text = ""
		}
	}
	switch text {
	case "":
		o.Removed, lasts = true, 0
	case "unlimited":
		o.Unlimited = true
	case "block":
		o.Block = true
	default:
		o.Limits = strings.Split(text, ", ")
	}
	return o, lasts, nil
}

// undoGift charges what a reset or a refund gave, as far as it would count still
// and there is room.
func (s *Service) undoGift(r *rulesapi.Request, d *rulesdb.AuditEntry, rule, key string) (did string, err error) {
	var was []charge
	if err := json.Unmarshal([]byte(d.Was), &was); err != nil {
		return "", refused("act %d: what was used before cannot be read", d.Number)
	}
	err = s.o.Editor.NoteUndo(r.Context, d.Number, func(ctx context.Context) (act rulesdb.Act, err error) {
		did, err = s.chargeAgain(ctx, was, rule, key)
		return rulesdb.Act{Author: r.Author, Act: actCharge, Subject: subject(rule, key), Now: did}, err
	})
	switch {
	case errors.Is(err, rulesdb.ErrConflict):
		return "", undoneBefore(d.Number)
	case err != nil && did != "":
		return "", unaudited(err)
	}
	return did, err
}

// chargeAgain charges a key with what it had used, and says what that was.
func (s *Service) chargeAgain(ctx context.Context, was []charge, rule, key string) (did string, err error) {
	p, now := s.o.Source.Policy(), time.Now()
	var parts []string
	for i := range was {
		n := was[i].now(now)
		if n == 0 {
			continue
		}
		charged, err := p.ChargeKey(ctx, rule, key, was[i].Label, was[i].Variant, n)
		if err != nil && len(parts) > 0 { // to try again would charge these twice
			return "charged again in part, since the store failed: " + strings.Join(parts, ", "), nil
		}
		if err != nil {
			return "", err
		}
		parts = append(parts, fmt.Sprintf("%d of %s", charged, was[i].Label))
	}
	if len(parts) == 0 {
		return "nothing of it would count any more", nil
	}
	return "charged again: " + strings.Join(parts, ", "), nil
}
