package rls_test

import (
	"strings"
	"testing"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/rls"
	"github.com/stint-dev/stint/service/rules"
)

// TestNoRulesYet: a service that starts before its rules blames them, not the store.
func TestNoRulesYet(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	source, err := rules.Open(store, "", &rules.File{Rules: policy.NotReady()}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := observe.New(observe.Options{})
	defer o.Close()
	s := rls.New(rls.Options{Source: source, Observer: o})
	if _, err := s.Decide(t.Context(), request("shop", "user", "ann"), false); err == nil || !strings.Contains(err.Error(), "there are no rules yet") {
		t.Errorf("%v", err)
	}
}
