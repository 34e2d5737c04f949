package rulesapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/rulesource"
)

// SetPlan refuses a plan that no rule in force has for the attribute. A plan may be removed even if
// its rules are gone.
func (d *Editor) SetPlan(ctx context.Context, attribute, value, plan, author, reason string) (was string, err error) {
	if plan != "" {
		f, err := d.Rules(ctx)
		if err != nil {
			return "", err
		}
		switch names := f.Rules.Plans(attribute); {
		case len(names) == 0:
			return "", &InputError{"attribute", fmt.Errorf("no rule in force has tiers by %q: known are %s", attribute, listed(f.Rules.TierAttributes()))}
		case !slices.Contains(names, plan):
			return "", &InputError{"plan", fmt.Errorf("tiers by %s have no plan %q: there are %s", attribute, plan, listed(names))}
		}
	}
	return d.Backend.SetPlan(ctx, attribute, value, plan, author, reason)
}

// PlanConsequences says, of a plan that a customer got, that it holds requests in flight where the rules'
// own limits do not; "" otherwise.
func (d *Editor) PlanConsequences(ctx context.Context, attribute, plan string) string {
	f, err := d.Rules(ctx)
	if err != nil {
		return ""
	}
	for _, r := range f.Rules.File().Rules() {
		if r.Tiers == nil || r.Tiers.By.Name != attribute {
			continue
		}
		to := r.Tiers.Plans[plan]
		own := cmp.Or(r.Own, r.Tiers.Default)
		if to != nil && slices.ContainsFunc(to.Limits, stint.Limit.InFlight) && (own == nil || !slices.ContainsFunc(own.Limits, stint.Limit.InFlight)) {
			return "Under rule " + r.Name + ", " + unheld
		}
	}
	return ""
}

// A Plan is a customer's plan as JSON. A value that is not UTF-8 is in ValueBase64.
type Plan struct {
	Attribute   string    `json:"attribute"`
	Value       string    `json:"value"`
	ValueBase64 []byte    `json:"value_base64,omitzero"`
	Plan        string    `json:"plan"`
	At          time.Time `json:"at"`
	Author      string    `json:"author"`
}

// PlanOf returns a plan as JSON has it.
func PlanOf(p rulesource.Plan) Plan {
	j := Plan{Attribute: p.Attribute, Value: p.Value, Plan: p.Plan, At: p.Created, Author: p.Author}
	if !utf8.ValidString(p.Value) {
		j.Value, j.ValueBase64 = "", []byte(p.Value)
	}
	return j
}

func (j *Plan) plan() rulesource.Plan {
	p := rulesource.Plan{Attribute: j.Attribute, Value: j.Value, Plan: j.Plan, Created: j.At, Author: j.Author}
	if len(j.ValueBase64) > 0 {
		p.Value = string(j.ValueBase64)
	}
	return p
}

// who returns the attribute and the value that the query names.
func (c *call) who() (attribute, value string, err error) {
	attribute, value = c.query.Get("attribute"), c.query.Get("value")
	switch {
	case len(c.query["attribute"]) != 1 || attribute == "":
		err = &InputError{"attribute", errors.New("write the name of one attribute, such as jwt.org")}
	case len(c.query["value"]) != 1 || value == "":
		err = &InputError{"value", errors.New("write one value of the attribute")}
	}
	return attribute, value, err
}

func (h *Handler) plan(c *call) (int, any, error) {
	attribute, value, err := c.who()
	if err != nil {
		return 0, nil, err
	}
	p, err := h.editor.Plan(c.ctx, attribute, value)
	return http.StatusOK, PlanOf(p), err
}

// A planChange is a customer's plan after and before a change; "" for none.
type planChange struct {
	Now string `json:"now"`
	Was string `json:"was"`
	// Note is the result of [Editor.PlanConsequences].
	Note string `json:"note,omitzero"`
}

func (h *Handler) putPlan(c *call) (int, any, error) {
	attribute, value, err := c.who()
	if err != nil {
		return 0, nil, err
	}
	var to struct {
		Plan   string `json:"plan"`
		Reason string `json:"reason"`
	}
	if err := c.body(maxBody, &to); err != nil {
		return 0, nil, err
	}
	if to.Plan == "" {
		return 0, nil, &InputError{"plan", errors.New("missing: DELETE takes a plan away")}
	}
	was, err := h.editor.SetPlan(c.ctx, attribute, value, to.Plan, c.author, to.Reason)
	return http.StatusOK, planChange{to.Plan, was, h.editor.PlanConsequences(c.ctx, attribute, to.Plan)}, err
}

func (h *Handler) deletePlan(c *call) (int, any, error) {
	attribute, value, err := c.who()
	if err != nil {
		return 0, nil, err
	}
	was, err := h.editor.SetPlan(c.ctx, attribute, value, "", c.author, c.query.Get("reason"))
	return http.StatusOK, planChange{Was: was}, err
}

func (h *Handler) plans(c *call) (int, any, error) {
	n, err := c.page()
	if err != nil {
		return 0, nil, err
	}
	var behind rulesource.Plan
	if text := c.query.Get("after"); text != "" {
		if behind.Attribute, behind.Value, err = after(text); err != nil {
			return 0, nil, err
		}
	}
	all, err := h.editor.Plans(c.ctx, c.query.Get("attribute"), behind, n)
	answer := struct {
		Plans []Plan `json:"plans"`
		Next  string `json:"next,omitzero"`
	}{Plans: List(all, PlanOf)}
	if len(all) == n {
		answer.Next = cursor(all[n-1].Attribute, all[n-1].Value)
	}
	return http.StatusOK, answer, err
}

// Plan returns the plan of the customers with a value of an attribute. The error is
// [rulesdb.ErrNotFound] if they have none.
func (c *Client) Plan(ctx context.Context, attribute, value string) (rulesource.Plan, error) {
	var p Plan
	err := c.get(ctx, "/v1/plan", url.Values{"attribute": {attribute}, "value": {value}}, &p)
	return p.plan(), err
}

// Plans returns up to n plans of an attribute, or of all attributes for "", after the last one of
// the page before.
func (c *Client) Plans(ctx context.Context, attribute string, last rulesource.Plan, n int) ([]rulesource.Plan, error) {
	query := url.Values{"attribute": {attribute}, "n": {strconv.Itoa(n)}}
	if last.Attribute != "" {
		query.Set("after", cursor(last.Attribute, last.Value))
	}
	var all struct{ Plans []*Plan }
	err := c.get(ctx, "/v1/plans", query, &all)
	return List(all.Plans, (*Plan).plan), err
}

// SetPlan assigns a plan to the customers with a value of an attribute, or removes it for "", and
// returns the plan before. The errors are those of [Client.SetOverride].
func (c *Client) SetPlan(ctx context.Context, attribute, value, plan, _, reason string) (was string, err error) {
	query := url.Values{"attribute": {attribute}, "value": {value}}
	var out planChange
	if plan == "" {
		query.Set("reason", reason)
		err = c.call(ctx, http.MethodDelete, "/v1/plan", query, noMatch, nil, &out)
	} else {
		err = c.call(ctx, http.MethodPut, "/v1/plan", query, noMatch, map[string]string{"plan": plan, "reason": reason}, &out)
	}
	return out.Was, err
}
