package operate

import (
	"cmp"
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
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rulesapi"
)

// The names of acts in the audit. Package rulesdb has those of overrides.
const (
	actReset  = "reset"
	actRefund = "refund"
	actCharge = "charge" // undoes a reset or a refund
)

// An Act is the answer to an act.
type Act struct {
	Rule    string `json:"rule"`
	Key     string `json:"key"`
	KeyHash string `json:"key_hash"`
	Did     string `json:"did"`
	Undone  int64  `json:"undone,omitzero"` // the number of the act that was undone
}

// customer returns the rule and the key that a query names.
func (s *Service) customer(r *rulesapi.Request) (rule, key string, err error) {
	if rule = r.Query.Get("rule"); rule == "" {
		return "", "", &rulesapi.InputError{Field: "rule", Err: errors.New("missing")}
	}
	key, err = s.o.Editor.Key(r.Context, rule, r.Customer())
	return rule, key, err
}

// A charge records in the audit the units that a key got back of one limit.
type charge struct {
	Label   string `json:"label"`
	Variant string `json:"variant,omitzero"`
	// Limit is the limit as rules write it.
	Limit string `json:"limit"`
	// Gave is how many of the Used units were given back. All Used units would have stopped
	// counting after For.
	Gave int64         `json:"gave"`
	Used int64         `json:"used"`
	For  time.Duration `json:"for"`
	// State names the state that the limit shares with limits of other plans; "" for its own.
	State string `json:"state,omitzero"`
}

// now returns how many of the given units would still count some time after they were given back.
// Where that is not known, since each unit ends at its own time, it returns the most possible.
func (c *charge) now(after time.Duration) int64 {
	left, all := c.For-after, c.For
	l, err := stint.Parse(c.Limit)
	if left <= 0 || err != nil {
		return 0
	}
	used := c.Used
	switch a := l.Algorithm(); {
	case a.WearsOff(): // a charge wears off within the last period
		all = min(all, l.Period())
		left = min(left, all)
	case !a.Takes(meter.Burst): // a charge counts whole until it ends
		left = all
	case !a.Evenly(): // a count of tokens comes back at each whole period
		periods := func(d time.Duration) int64 { return int64((d + l.Period() - 1) / l.Period()) }
		used -= (periods(all) - periods(left)) * l.Count()
		left = all
	}
	if left < all {
		used = int64(float64(used)*float64(left)/float64(all) + 0.5)
	}
	return max(0, min(used, c.Gave))
}

// capacity returns the capacity of the limit.
func (c *charge) capacity() int64 {
	l, err := stint.Parse(c.Limit)
	if err != nil {
		return 0
	}
	return l.Capacity()
}

// charges returns what a key has used. It leaves out limits that have banned the key: what the key
// used of these is not known, and an undo must not begin a ban.
func (s *Service) charges(ctx context.Context, p *policy.Policy, rule, key string) ([]charge, error) {
	limits, err := p.UsedOf(ctx, rule, key)
	if err != nil {
		return nil, err
	}
	all := chargesOf(limits)
	if p.OneState(rule) {
		for i := range all {
			if l, err := stint.Parse(all[i].Limit); err == nil {
				all[i].State = l.WithName("").ID()
			}
		}
	}
	return all, nil
}

func chargesOf(limits []policy.RuleResult) (all []charge) {
	for i := range limits {
		if e := &limits[i]; e.Action == "" && !e.Banned && !e.Limit.InFlight() && e.Used > 0 {
			all = append(all, charge{Label: e.Label, Variant: e.Variant, Limit: e.Limit.String(), Gave: e.Used, Used: e.Used, For: e.ResetAfter})
		}
	}
	return all
}

// reset answers POST /v1/reset: it resets a key under a rule.
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
	return s.give(r, body.Reason, gift{actRefund, fmt.Sprintf("up to %d units given back", body.Cost), body.Cost, func(ctx context.Context, p *policy.Policy, rule, key string) error {
		return p.RefundKey(ctx, rule, key, body.Cost)
	}})
}

// A gift is an act that gives units back to a key.
type gift struct {
	act, did string
	most     int64 // the most that it may give back of a limit
	do       func(ctx context.Context, p *policy.Policy, rule, key string) error
}

// give records that an act was begun, carries it out, and records what it gave back.
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

// Unban ends the bans of a key under a rule. If bans cannot be seen, for example while the store is
// down, it reports none.
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
	var lost error // the error of a store that may have acted
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
		return fmt.Errorf("%w: %w", rulesapi.ErrUnaudited, err)
	}
	return err
}

// gave carries out a gift, and returns what it gave back, for the audit. After the error lost the
// store may have acted, and what it gave is not known.
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
	if err != nil { // the act is done; record the most that it can have given
		for i := range before {
			before[i].Gave = min(before[i].Gave, g.most)
		}
	}
	text, err := json.Marshal(given(before, after))
	return string(text), nil, err
}

// given returns what an act gave back: the units used before and no longer used after.
func given(before, after []charge) []charge {
	for i := range before {
		at := slices.IndexFunc(after, func(c charge) bool { return c.Label == before[i].Label && c.Variant == before[i].Variant })
		if at >= 0 {
			before[i].Gave = max(before[i].Used-after[at].Used, 0)
		}
	}
	return before
}

func subject(rule, key string) string { return fmt.Sprintf("%s %q", rule, key) }

// customerOf parses the subject of an act.
func customerOf(subject string) (rule, key string, ok bool) {
	rule, quoted, ok := strings.Cut(subject, " ")
	key, err := strconv.Unquote(quoted)
	return rule, key, ok && err == nil
}

func (s *Service) act(r *rulesapi.Request, rule, key, did string) Act {
	shown, hash := s.named(rule, key, r.Clear())
	return Act{Rule: rule, Key: shown, KeyHash: hash, Did: did}
}

// log logs an act, with the hash of the key.
func (s *Service) log(r *rulesapi.Request, act, rule, key string, err error) {
	_, hash := s.named(rule, key, false)
	attrs := []any{"act", act, "author", r.Author, "rule", rule, "key_hash", hash}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	s.o.Log.Info("operator", attrs...)
}

// mostUndo is how many acts back an undo looks.
const mostUndo = 1000

// undo answers POST /v1/undo: it undoes an act, by default the caller's last one.
func (s *Service) undo(r *rulesapi.Request) (int, any, error) {
	var body struct {
		Act  int64 `json:"act"`
		Show bool  `json:"show"`
	}
	if err := r.Body(&body); err != nil {
		return 0, nil, err
	}
	d, err := toUndo(r.Context, s.o.Editor, r.Author, body.Act)
	if err != nil {
		return 0, nil, err
	}
	answer := Act{Did: doing(d), Undone: d.Number}
	if rule, key, ok := customerOf(d.Subject); ok && d.Act.Act != rulesdb.ActLoad {
		answer = s.act(r, rule, key, answer.Did)
		answer.Undone = d.Number
	}
	if body.Show {
		return http.StatusOK, answer, nil
	}
	if isGift(d) {
		answer.Did, err = s.undoGift(r, d)
	} else {
		answer.Did, err = undoOverrides(r.Context, s.o.Editor, d, r.Author)
	}
	attrs := []any{"act", "undo", "author", r.Author, "rule", answer.Rule, "key_hash", answer.KeyHash, "undone", d.Number}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	s.o.Log.Info("operator", attrs...)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, answer, nil
}

// Undo undoes an act without a server, by default the author's last one. With show it only returns
// that act. It cannot undo a reset or a refund, since the units must be charged in a server's
// store.
func Undo(ctx context.Context, k *rulesapi.Editor, author string, number int64, show bool) (Act, error) {
	d, err := toUndo(ctx, k, author, number)
	if err != nil {
		return Act{}, err
	}
	answer := Act{Did: doing(d), Undone: d.Number}
	if rule, key, ok := customerOf(d.Subject); ok && d.Act.Act != rulesdb.ActLoad {
		answer.Rule, answer.Key = rule, key
	}
	switch {
	case show:
		return answer, nil
	case isGift(d):
		return answer, refused("act %d, %s: what it gave is charged again by a server: name its admin address with --server", d.Number, d.Act.Act)
	}
	answer.Did, err = undoOverrides(ctx, k, d, author)
	return answer, err
}

// doing says what an act did.
func doing(d *rulesdb.AuditEntry) string {
	text := d.Act.Act
	if text == rulesdb.ActLoad {
		text += " of " + d.Subject
	}
	if d.Now != "" {
		text += ", " + d.Now
	}
	return text + " by " + d.Author
}

func isGift(d *rulesdb.AuditEntry) bool { return d.Act.Act == actReset || d.Act.Act == actRefund }

// undoOverrides undoes an act that set, removed or loaded overrides.
func undoOverrides(ctx context.Context, k *rulesapi.Editor, d *rulesdb.AuditEntry, author string) (did string, err error) {
	did, err = k.UndoOverrides(ctx, d.Number, author)
	switch {
	case errors.Is(err, rulesdb.ErrConflict):
		return "", undoneBefore(d.Number)
	case errors.Is(err, rulesdb.ErrInput):
		return "", &rulesapi.InputError{Field: "act", Err: err}
	case err != nil || d.Act.Act == rulesdb.ActLoad:
	case did == "":
		rule, key, _ := customerOf(d.Subject)
		did = k.Usual(ctx, rule, key) + " hold again"
	default:
		did = "as before: " + did
	}
	return did, err
}

func undoneBefore(act int64) error { return refused("act %d has been taken back already", act) }

func refused(format string, args ...any) error {
	return &rulesapi.InputError{Field: "act", Err: fmt.Errorf(format, args...)}
}

// toUndo returns the act to undo; number 0 means the author's last one.
func toUndo(ctx context.Context, k *rulesapi.Editor, author string, number int64) (*rulesdb.AuditEntry, error) {
	acts, err := k.Audit(ctx, 0, mostUndo)
	if err != nil {
		return nil, err
	}
	later := make(map[string]bool) // the reasons of later acts, among them undos
	for i := range acts {
		d := &acts[i]
		undone, own := later[rulesdb.UndoOf(d.Number)], number == 0 && d.Author == author
		later[d.Reason] = true
		kind := isGift(d) || slices.Contains([]string{rulesdb.ActSet, rulesdb.ActRemove, rulesdb.ActLoad}, d.Act.Act)
		switch {
		case number != d.Number && !own:
		case own && (d.Undoes() || undone || !kind):
			return nil, refused("which one? Your last act, %d, is %s: name the act by its number, as stint audit lists it", d.Number, why(d, undone))
		case undone:
			return nil, undoneBefore(number)
		case !kind:
			return nil, refused("act %d, %s, is none that can be taken back so: overrides, blocks, loads, resets and refunds are; rules rollback goes back to rules of before", number, d.Act.Act)
		default:
			return d, nil
		}
	}
	if number == 0 {
		return nil, refused("there is no act of yours to take back: name one of another by its number, as stint audit lists it")
	}
	if len(acts) > 0 && number > acts[0].Number {
		return nil, refused("there is no act %d: the last is %d", number, acts[0].Number)
	}
	return nil, refused("act %d is not among the last %d", number, mostUndo)
}

// why says why an act is not taken for the one that is meant.
func why(d *rulesdb.AuditEntry, undone bool) string {
	switch {
	case d.Undoes():
		return "an " + d.Reason
	case undone:
		return "taken back already"
	}
	return d.Act.Act
}

// undoGift charges again what a reset or a refund gave back, as far as it would still count and
// there is room.
func (s *Service) undoGift(r *rulesapi.Request, d *rulesdb.AuditEntry) (did string, err error) {
	rule, key, ok := customerOf(d.Subject)
	var was []charge
	if err := json.Unmarshal([]byte(d.Was), &was); err != nil || !ok {
		return "", refused("act %d: what was used before, or by whom, cannot be read", d.Number)
	}
	err = s.o.Editor.NoteUndo(r.Context, d.Number, func(ctx context.Context, at time.Time) (act rulesdb.Act, err error) {
		did, err = s.chargeAgain(ctx, was, rule, key, at.Sub(d.At))
		return rulesdb.Act{Author: r.Author, Act: actCharge, Subject: subject(rule, key), Now: did}, err
	})
	switch {
	case errors.Is(err, rulesdb.ErrConflict):
		return "", undoneBefore(d.Number)
	case err != nil && did != "":
		return "", fmt.Errorf("%w: %w", rulesapi.ErrUnaudited, err)
	}
	return did, err
}

// chargeAgain charges a key for units that were given back some time ago, and says what it charged. Limits
// that share a state are charged once, that with the most room first.
func (s *Service) chargeAgain(ctx context.Context, was []charge, rule, key string, after time.Duration) (did string, err error) {
	p := s.o.Source.Policy()
	var parts []string
	slices.SortStableFunc(was, func(a, b charge) int { return cmp.Compare(b.capacity(), a.capacity()) })
	charged := make(map[string]int64) // by state
	for i := range was {
		state := cmp.Or(was[i].State, was[i].Label+"\x00"+was[i].Variant)
		n := was[i].now(after) - charged[state]
		if n <= 0 {
			continue
		}
		n, err := p.ChargeKey(ctx, rule, key, was[i].Label, was[i].Variant, n)
		if err != nil && len(parts) > 0 { // a repetition would charge these twice
			return "charged again in part, since the store failed: " + strings.Join(parts, ", "), nil
		}
		if err != nil {
			return "", err
		}
		if charged[state] += n; n > 0 || was[i].State == "" {
			parts = append(parts, fmt.Sprintf("%d of %s", n, was[i].Label))
		}
	}
	if len(parts) == 0 {
		return "nothing of it, as far as is known, would count any more", nil
	}
	return "charged again: " + strings.Join(parts, ", "), nil
}
