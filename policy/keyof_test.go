package policy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// TestKeyOf: the key that is made of attributes alone is the key that a decision charges.
func TestKeyOf(t *testing.T) {
	secret := []byte("0123456789abcdef")
	tests := []struct {
		name, rule string
		attrs      policy.Map
	}{
		{"one attribute", `"key": ["user"]`, policy.Map{"user": "anna"}},
		{"a long one", `"key": ["user"]`, policy.Map{"user": strings.Repeat("a", 300)}},
		{"like a hash", `"key": ["user"]`, policy.Map{"user": "~anna"}},
		{"several", `"key": ["ip", "path", "user"]`, policy.Map{"ip": "192.0.2.7", "path": "/a//b/../c", "user": "5:anna"}},
		{"an IPv6 address", `"key": ["ip"]`, policy.Map{"ip": "2001:db8::1"}},
		{"hashed", `"key": ["user"], "hash_key": true`, policy.Map{"user": "anna"}},
		{"shared by all", `"key": []`, policy.Map{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := made.Rules(t, `{"rules": [{"name": "a", `+test.rule+`, "limits": ["5/m"]}]}`)
			store := memstore.New(memstore.Options{})
			defer store.Close()
			p := made.Policy(t, store, r, policy.Options{Secret: secret})
			defer p.Close()
			result := decideN(t, p, test.attrs, 1)
			got, err := r.KeyOf("a", test.attrs, secret)
			if err != nil || got != result.Key(0) {
				t.Errorf("key %q, %v; a decision has %q", got, err, result.Key(0))
			}
			attrs, ok := r.AttributesOf("a", got)
			if want := !strings.Contains(got, "~"); ok != want {
				t.Errorf("the attributes of %q: %v, %v", got, attrs, ok)
			}
			if back, err := r.KeyOf("a", attrs, secret); ok && (err != nil || back != got) {
				t.Errorf("the key of %v: %q, %v; want %q", attrs, back, err, got)
			}
		})
	}
}

func TestKeyOfRefuses(t *testing.T) {
	r := made.Rules(t, `{"rules": [{"name": "a", "key": ["ip"], "limits": ["5/m"]}, {"name": "h", "key": ["user"], "hash_key": true, "limits": ["5/m"]}]}`)
	if _, err := r.KeyOf("b", policy.Map{}, nil); !errors.Is(err, policy.ErrNoRule) {
		t.Errorf("no such rule: %v", err)
	}
	for _, attrs := range []policy.Map{{}, {"ip": ""}, {"ip": "192.0.2"}} {
		if key, err := r.KeyOf("a", attrs, nil); err == nil {
			t.Errorf("%v: key %q", attrs, key)
		}
	}
	if key, err := r.KeyOf("h", policy.Map{"user": "anna"}, nil); err == nil {
		t.Errorf("without the secret: %q", key)
	}
}
