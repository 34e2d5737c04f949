package policy_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// FuzzParse looks for panics, and for files that are accepted and then cannot
// be used.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("rulesfile/testdata/*.json")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && len(data) < 10_000 {
			f.Add(data)
		}
	}
	attrs := policy.Map{"method": "POST", "path": "/login", "ip": "192.0.2.7", "host": "a.example.com", "header.x-api-key": "partner-1"}
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := policy.Parse(data)
		if err != nil {
			var errs rulesfile.Errors
			if !errors.As(err, &errs) {
				t.Fatalf("%T", err)
			}
			return
		}
		if !json.Valid(data) {
			t.Fatal("encoding/json refuses this")
		}
		rules.File().Warnings()
		for _, c := range rules.Compare(rules) {
			t.Fatalf("a change without a change: %v", c)
		}
		if _, err := rules.Explain(attrs); err != nil && !errors.Is(err, policy.ErrRequest) {
			t.Fatal(err)
		}
		p, err := policy.New(memstore.New(memstore.Options{MaxKeys: 1}), rules, policy.Options{Secret: []byte("0123456789abcdef")})
		if err != nil {
			if !strings.Contains(err.Error(), "a log of") {
				t.Fatal(err)
			}
			return
		}
		var r policy.Result
		for _, cost := range []int64{1, 1 << 62} {
			if err := p.Decide(t.Context(), attrs, cost, &r); err != nil && !errors.Is(err, policy.ErrRequest) {
				t.Fatal(err)
			}
		}
	})
}
