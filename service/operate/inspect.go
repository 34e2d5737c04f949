package operate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"
	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rulesapi"
)

// A Story is the state of a client under all rules that may apply to it.
type Story struct {
	At      time.Time `json:"at"`
	Version Version   `json:"version"`
	// Denied reports whether a request would certainly be denied now. Where that depends on unknown
	// attributes, Verdict names the rules.
	Denied  bool   `json:"denied"`
	Verdict string `json:"verdict"`
	// Refused says why stint proxy, /auth and middleware answer the request with 400. The rest of
	// the story then holds only for other callers.
	Refused string    `json:"refused,omitzero"`
	Rules   []Rule    `json:"rules"`
	LeftOut []LeftOut `json:"left_out"`
	More    bool      `json:"more,omitzero"`
}

// A Version identifies the rules in force.
type Version struct {
	Name     string `json:"name"`
	Hash     string `json:"hash"`
	Revision int64  `json:"revision,omitzero"`
	Change   int64  `json:"change,omitzero"`
	Problem  string `json:"problem,omitzero"`
}

// A Rule is the state of a client under one rule.
type Rule struct {
	Rule      string   `json:"rule"`
	Key       string   `json:"key"`
	KeyBase64 []byte   `json:"key_base64,omitzero"` // the key, if it is not UTF-8
	KeyHash   string   `json:"key_hash"`
	Why       string   `json:"why"`
	Where     []string `json:"where,omitzero"`
	Shadow    bool     `json:"shadow,omitzero"`
	Ends      bool     `json:"ends,omitzero"`
	Missing   bool     `json:"missing,omitzero"`
	Denied    bool     `json:"denied"`
	// Unknown reports whether it is not known if the rule denies, since the store does not answer.
	Unknown bool `json:"unknown,omitzero"`
	// ReserveOnly reports whether requests that match the rule are refused here unless they are
	// reserved, since one of its limits is in flight.
	ReserveOnly bool    `json:"reserve_only,omitzero"`
	Limits      []Limit `json:"limits"`
	// Override is the override of the key; null if it has none.
	Override *rulesapi.Override `json:"override"`
	// Denials are those of the last minutes; null if none are known.
	Denials *Denials `json:"denials"`
	// StoreError says why the store did not answer.
	StoreError string `json:"store_error,omitzero"`
}

// A Limit is the state of a client under one limit. A time of null means never.
type Limit struct {
	Limit        string `json:"limit"`
	Label        string `json:"label"`
	Variant      string `json:"variant,omitzero"`
	Capacity     int64  `json:"capacity"`
	Used         *int64 `json:"used"` // null if it is not known
	Remaining    int64  `json:"remaining"`
	Denied       bool   `json:"denied"`
	Banned       bool   `json:"banned,omitzero"`
	RetryAfterMS *int64 `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	Cost         int64  `json:"cost"`
	Words        string `json:"words"`
}

// A Denials is the denials of a key in the last ten minutes.
type Denials struct {
	Count uint64 `json:"count"`
	// Up to Over of Count may be of other keys.
	Over uint64 `json:"over,omitzero"`
	// Minutes is how often the key was denied in each minute, the present one first.
	Minutes []uint32  `json:"minutes"`
	Since   time.Time `json:"since"`
	Last    time.Time `json:"last"`
}

// A LeftOut is a rule that may apply, but whose key is not fully known.
type LeftOut struct {
	Rule    string   `json:"rule"`
	Missing []string `json:"missing"`
}

// mostAttributes bounds the attributes of a request.
const mostAttributes = 64

// inspect answers POST /v1/inspect.
func (s *Service) inspect(r *rulesapi.Request) (int, any, error) {
	var asked struct {
		Attributes map[string]string `json:"attributes"`
		Sent       int64             `json:"sent"`
	}
	if err := r.Body(&asked); err != nil {
		return 0, nil, err
	}
	switch n := len(asked.Attributes); {
	case n == 0:
		return 0, nil, &rulesapi.InputError{Field: "attributes", Err: errors.New(`missing: say what is known of the client, such as {"ip": "192.0.2.7"}`)}
	case n > mostAttributes:
		return 0, nil, &rulesapi.InputError{Field: "attributes", Err: errors.New("at most 64")}
	case asked.Sent < 0:
		return 0, nil, &rulesapi.InputError{Field: "sent", Err: errors.New("below zero: write how many bytes the body of the request has")}
	}
	known := named(asked.Attributes)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if unknown := s.o.Source.Policy().Rules().File().Unknown(name); unknown != nil {
			return 0, nil, &rulesapi.InputError{Field: "attributes." + name, Err: unknown}
		}
	}
	story, err := s.story(r.Context, &sending{known, asked.Sent}, r.Clear())
	if fault, ok := errors.AsType[*policy.RequestError](err); ok {
		err = &rulesapi.InputError{Field: "attributes." + fault.Attribute, Err: errors.New(fault.Reason)}
	}
	return http.StatusOK, story, err
}

// named converts the names of headers to those of attributes.
func named(attributes map[string]string) policy.Map {
	all := make(policy.Map, len(attributes))
	for name, value := range attributes {
		all[policy.AttributeName(name)] = value
	}
	return all
}

// sending is what is known of a request: attributes, and how many bytes its body has.
type sending struct {
	policy.Map
	bytes int64
}

// BodyLength returns how many bytes the body has, for costs that count them.
func (s *sending) BodyLength() int64 { return s.bytes }

// story returns the state of a client of whom something is known. Texts of rules that name
// clients are left out unless clear is true. Nothing is charged.
func (s *Service) story(ctx context.Context, known *sending, clear bool) (*Story, error) {
	p := s.o.Source.Policy()
	all, left, more, err := p.Standings(ctx, known)
	if err != nil {
		return nil, err
	}
	if !clear {
		hide(all, p.Rules().File().Rules())
	}
	story := &Story{At: time.Now().UTC(), Version: s.version(clear), Rules: []Rule{}, LeftOut: []LeftOut{}, More: more}
	for i := range all {
		rule := s.rule(ctx, &all[i])
		story.Denied = story.Denied || rule.Denied && !rule.Shadow && len(rule.Where) == 0
		story.Rules = append(story.Rules, rule)
	}
	for _, l := range left {
		story.LeftOut = append(story.LeftOut, LeftOut(l))
	}
	story.Verdict = verdict(story)
	if by, others, err := ambiguous(p.Rules(), known.Map); err != nil {
		story.Refused = err.Error()
		story.Verdict = fmt.Sprintf("Refused with 400 by %s: %s. For %s: %s", by, story.Refused, others, story.Verdict)
	}
	return story, nil
}

// ambiguous returns why a server that sees the request as it was sent would not decide it by the
// rules, which refuse it, and which do not. The proxy sends a path on in one spelling.
func ambiguous(rules *policy.Rules, attrs policy.Map) (by, others string, err error) {
	var servers httplimit.Ambiguous
	by, others = "stint proxy, /auth and middleware", "other callers"
	if err = servers.Check(rules, request.Described(attrs).Request()); err != nil || attrs["path"] == "" {
		return by, others, err
	}
	if _, bad := policy.CleanPath(attrs["path"]); bad == nil && !strings.Contains(attrs["path"], " ") {
		by, others = "/auth and middleware", "stint proxy and other callers"
	}
	return by, others, servers.CheckPath(rules, attrs["path"])
}

// hide removes texts that name clients from standings.
func hide(all []policy.Standing, file []*rulesfile.Rule) {
	texts := make(map[string]string)
	for _, one := range file {
		if text := rulesapi.Private(one); text != "" {
			texts[one.Name] = text
		}
	}
	for i := range all {
		text, private := texts[all[i].Rule]
		if !private {
			continue
		}
		if all[i].Why = text; len(all[i].Where) > 0 {
			all[i].Where = []string{"its conditions hold"}
		}
		for k := range all[i].Limits { // the name of a tier may be a value that clients send
			all[i].Limits[k].Variant, _, _ = strings.Cut(all[i].Limits[k].Variant, " ")
		}
	}
}

// verdict says in a sentence or two whether a request would be denied now.
func verdict(s *Story) string {
	var names []string
	for i := range s.Rules {
		if r := &s.Rules[i]; r.ReserveOnly && !r.Denied {
			names = append(names, r.Rule)
		}
	}
	text := byLimits(s)
	if len(names) == 0 || s.Denied {
		return text
	}
	return "Refused here where rule " + oneOf(names) + " holds, since it has a limit in flight, unless the request is reserved (/v1/reserve, STINT.RESERVE). For a reservation: " + text
}

// byLimits says what the limits say. Of a rule that may match it
// says so: the rule's Where has the conditions. It does not say that the request passes while
// attributes are unknown.
func byLimits(s *Story) string {
	var own, others []string // rules that deny if they match: the client's own count, or everyone
	var unknown []string
	for i := range s.Rules {
		switch r := &s.Rules[i]; {
		case r.Unknown && !r.Shadow:
			unknown = append(unknown, r.Rule)
		case !r.Denied || r.Shadow:
		case len(r.Where) == 0:
			return "Denied now by rule " + r.Rule + "."
		case r.Key != "" || r.KeyBase64 != nil:
			own = append(own, r.Rule)
		default:
			others = append(others, r.Rule)
		}
	}
	silent := ""
	if len(unknown) > 0 {
		silent = " What rule " + oneOf(unknown) + " says is not known: the store does not answer."
	}
	if len(own) > 0 {
		return "Denied where rule " + oneOf(append(own, others...)) + " matches." + silent
	}
	text := "Passes"
	if len(s.LeftOut) > 0 || s.More || len(unknown) > 0 {
		text += " as far as is known"
	}
	if len(others) > 0 {
		text += ", except where rule " + oneOf(others) + " matches"
	}
	switch {
	case silent != "":
		return text + "." + silent
	case len(s.LeftOut) > 0:
		text += ". Not given is " + strings.Join(s.LeftOut[0].Missing, " and ") + ", which rule " + s.LeftOut[0].Rule + " looks at"
	case s.More:
		text += ". There are more rules than were looked at"
	case len(s.Rules) == 0:
		return "No rule holds for this client: it passes."
	case len(others) == 0:
		text += " now"
	}
	return text + "."
}

// oneOf joins the names of rules, three at most.
func oneOf(names []string) string {
	if len(names) > 3 {
		names = append(names[:3:3], fmt.Sprintf("%d more", len(names)-3))
	}
	return strings.Join(names, " or ")
}

// version returns the version of the rules in force.
func (s *Service) version(clear bool) Version {
	f := s.o.Source.File()
	held, problem := s.o.Source.Held()
	return Version{f.Name, f.Hash(), held.Revision, held.Change, rulesapi.Fault(problem, clear)}
}

func (s *Service) rule(ctx context.Context, at *policy.Standing) Rule {
	r := Rule{Rule: at.Rule, Key: at.Key, KeyHash: at.Hash, Why: at.Why, Where: at.Where, Shadow: at.Shadow,
		Ends: at.Ends, Missing: at.Missing, Limits: []Limit{}}
	if !utf8.ValidString(at.Key) {
		r.Key, r.KeyBase64 = "", []byte(at.Key)
	}
	for i := range at.Limits {
		l := limitOf(&at.Limits[i])
		r.Denied, r.Unknown = r.Denied || l.Denied, r.Unknown || unknown(&at.Limits[i])
		r.Limits = append(r.Limits, l)
		r.ReserveOnly = r.ReserveOnly || !r.Shadow && at.Limits[i].Limit.InFlight() && s.o.Source.ReservesOnly()
	}
	r.Unknown = r.Unknown && !r.Denied
	if at.Err != nil {
		r.StoreError = at.Err.Error()
	}
	if at.Own || at.Idle {
		o, err := s.o.Editor.Override(ctx, at.Rule, at.Key)
		switch {
		case err == nil:
			r.Override = rulesapi.OverrideOf(o)
		case !errors.Is(err, rulesdb.ErrNotFound): // the revision is in force, even if its author is not known
			r.Override = &rulesapi.Override{Rule: at.Rule, Key: at.Key, Reason: "who set it cannot be read now"}
		}
		if r.Override != nil {
			r.Override.Note = rulesapi.Note(s.o.Source.Policy().Rules(), at.Rule)
		}
	}
	if d, known := s.o.TopKeys.Of(at.Rule, at.Key); known && d.Count > 0 {
		r.Denials = &Denials{d.Count, d.Over, d.Each, d.Since.UTC(), d.Last.UTC()}
	}
	return r
}

// unknown reports whether nobody could say if a limit denies. What on_store_failure says is known,
// but for rules in shadow, which do not decide then.
func unknown(e *policy.RuleResult) bool {
	return e.Used < 0 && !e.Denied && (e.Failed == policy.FailLocal || e.Failed == policy.FailOpen && e.Shadow)
}

func limitOf(e *policy.RuleResult) Limit {
	l := Limit{Limit: e.Text, Label: e.Label, Variant: e.Variant, Denied: e.Denied, Banned: e.Banned, Cost: e.Cost,
		ResetAfterMS: milliseconds(e.ResetAfter), Words: words(e)}
	if e.Action == "" {
		l.Capacity, l.Remaining = e.Capacity, max(e.Remaining, 0)
		if e.Used >= 0 {
			l.Used = &e.Used
		}
	}
	if wait, ends := e.RetryAfter.Duration(); ends {
		ms := milliseconds(wait)
		l.RetryAfterMS = &ms
	}
	return l
}

// milliseconds rounds up.
func milliseconds(d time.Duration) int64 {
	if d > math.MaxInt64-time.Millisecond {
		return int64(d / time.Millisecond)
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
