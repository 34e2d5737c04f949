package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/simulate"

	"github.com/stint-dev/stint/service/rules"
)

// A whole request is a line of simulate --rules: when it comes, what it is, and
// what its caller says it costs.
type wholeRequest struct {
	T          string            `json:"t"`
	Attributes map[string]string `json:"attributes"`
	Cost       *int64            `json:"cost"`
}

// Attribute implements [policy.Attributes].
func (r *wholeRequest) Attribute(name string) (string, bool) {
	v, ok := r.Attributes[name]
	return v, ok
}

// A ruledAnswer is what the rules said of it.
type ruledAnswer struct {
	T          string      `json:"t"`
	Allowed    bool        `json:"allowed"`
	RetryAfter string      `json:"retry_after,omitempty"`
	Rules      []ruleSpoke `json:"rules"`
	// Error is why the request is at fault.
	Error string `json:"error,omitempty"`
}

// A ruleSpoke is what one limit said.
type ruleSpoke struct {
	Rule      string `json:"rule"`
	Key       string `json:"key"`
	Cost      int64  `json:"cost"`
	Remaining int64  `json:"remaining"`
	Denied    bool   `json:"denied,omitempty"`
}

// longestRequest bounds a line, in bytes.
const longestRequest = 1 << 20

// byRules answers whole requests by a rules file.
func (c *simulateCmd) byRules(e *env) error {
	file, err := rules.Read(c.Rules)
	if err != nil {
		return err
	}
	var clock simulate.Clock
	store := memstore.New(memstore.Options{Now: clock.Now})
	defer store.Close()
	p, err := policy.New(store, file.Rules, policy.Options{})
	if err != nil {
		return err
	}
	in := bufio.NewScanner(e.in)
	in.Buffer(nil, longestRequest)
	out := json.NewEncoder(e.out)
	var result policy.Result
	for n := 1; in.Scan(); n++ {
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		answer, err := c.answerLine(e, p, &clock, in.Bytes(), &result)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return in.Err()
}

// answerLine answers one line.
func (c *simulateCmd) answerLine(e *env, p *policy.Policy, clock *simulate.Clock, line []byte, result *policy.Result) (*ruledAnswer, error) {
	var r wholeRequest
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf(`%w; write {"t":"1s","attributes":{"ip":"192.0.2.1","method":"GET","path":"/"},"cost":1}`, err)
	}
	at, err := momentOf(r.T)
	if err != nil {
		return nil, err
	}
	if at < clock.Now() {
		return nil, fmt.Errorf("t: %s is before the line above", r.T)
	}
	clock.Advance(at)
	cost := int64(1)
	if r.Cost != nil {
		cost = *r.Cost
	}
	answer := &ruledAnswer{T: r.T, Rules: []ruleSpoke{}}
	err = p.Decide(e.ctx, &r, cost, result)
	switch {
	case errors.Is(err, policy.ErrRequest) || errors.Is(err, stint.ErrCost):
		answer.Error = err.Error()
		return answer, nil
	case err != nil:
		return nil, err
	}
	answer.Allowed, answer.RetryAfter = result.Decision.Allowed, fmt.Sprint(result.Decision.RetryAfter)
	for k, one := range result.Rules {
		answer.Rules = append(answer.Rules, ruleSpoke{one.Label, result.Key(k), one.Cost, one.Remaining, one.Denied})
	}
	return answer, nil
}

// momentOf reads a duration or an RFC 3339 time as nanoseconds.
func momentOf(text string) (int64, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return int64(d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, fmt.Errorf(`t: %q: write a duration such as "1.5s", or a time such as 2025-03-05T12:00:00Z`, text)
	}
	return t.UnixNano(), nil
}
