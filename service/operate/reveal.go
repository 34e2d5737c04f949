package operate

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rulesapi"
)

// A Revealed is a key that an operator asked for by its hash.
type Revealed struct {
	Rule    string `json:"rule"`
	Key     string `json:"key"`
	KeyHash string `json:"key_hash"`
	// Attributes are the attributes in the key; null where the key holds hashes.
	Attributes map[string]string `json:"attributes"`
}

// reveal answers POST /v1/reveal: it returns the key with a hash, if the key is known as denied, as
// near a limit, or by an override. The audit records it before it is answered.
func (s *Service) reveal(r *rulesapi.Request) (int, any, error) {
	var body struct {
		Rule    string `json:"rule"`
		KeyHash string `json:"key_hash"`
		Reason  string `json:"reason"`
	}
	if err := r.Body(&body); err != nil {
		return 0, nil, err
	}
	if body.Rule == "" || body.KeyHash == "" {
		return 0, nil, &rulesapi.InputError{Field: "key_hash", Err: errors.New(`want {"rule": "…", "key_hash": "…"}, as lists of keys have them`)}
	}
	key, err := s.keyOf(r.Context, body.Rule, body.KeyHash)
	if err != nil {
		return 0, nil, err
	}
	err = s.o.Editor.Note(r.Context, rulesdb.Act{Author: r.Author, Act: "key reveal", Subject: fmt.Sprintf("%s %q", body.Rule, body.KeyHash), Reason: body.Reason})
	s.log(r, "reveal", body.Rule, key, err)
	if err != nil {
		return 0, nil, err
	}
	shown, hash := s.named(body.Rule, key, true)
	attrs, _ := s.o.Source.Policy().Rules().AttributesOf(body.Rule, key)
	return http.StatusOK, Revealed{body.Rule, shown, hash, attrs}, nil
}

// keyOf returns the key that has a hash under a rule.
func (s *Service) keyOf(ctx context.Context, rule, hash string) (string, error) {
	p := s.o.Source.Policy()
	is := func(r, key string) bool { return r == rule && p.KeyHash(r, key) == hash }
	for _, d := range s.o.TopKeys.Denied(maxPage * 2) {
		if is(d.Rule, d.Key) {
			return d.Key, nil
		}
	}
	for _, n := range s.o.TopKeys.Nearest(maxPage * 2) {
		if is(n.Rule, n.Key) {
			return n.Key, nil
		}
	}
	page := rulesdb.Page{Rule: rule, N: maxPage}
	for looked := 0; looked < mostLooked; looked += maxPage {
		some, err := s.o.Editor.Overrides(ctx, page)
		if err != nil {
			return "", err
		}
		for _, o := range some {
			if is(o.Rule, o.Key) {
				return o.Key, nil
			}
			page.AfterRule, page.AfterKey = o.Rule, o.Key
		}
		if len(some) < maxPage {
			break
		}
	}
	return "", fmt.Errorf("the key %s of rule %s is not remembered: %w", hash, rule, rulesdb.ErrNotFound)
}
