package rulesapi_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rulesapi"
)

// exercise changes and reads everything by an editor whose revision 1 is document.
func exercise(t *testing.T, d *rulesapi.Editor) {
	t.Helper()
	ctx := t.Context()
	check := func(what string, ok bool, err error) {
		t.Helper()
		if !ok || err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	r, err := d.Publish(ctx, 1, rulesdb.Revision{Author: "anna", Name: "stint.yaml", Document: []byte(document + "# two\n")})
	check("publish", r.Number == 2, err)
	_, err = d.Publish(ctx, 1, rulesdb.Revision{Author: "anna", Name: "stint.yaml", Document: []byte(document)})
	check("conflict", errors.Is(err, rulesdb.ErrConflict), nil)
	r, err = d.Rollback(ctx, 2, 1, "anna", "back")
	check("roll back", r.Number == 3 && string(r.Document) == document, err)
	log, err := d.Revisions(ctx, 0, 10)
	check("log", len(log) == 3, err)

	key := "a\xff/'; --"
	got, err := d.Key(ctx, "api", rulesapi.Customer{Key: key})
	check("key", got == key, err)
	was, now, err := d.SetOverride(ctx, rulesource.Override{Rule: "api", Key: key, Limits: []string{"7/m"}, Author: "anna"}, time.Hour)
	check("set", was.Removed && !now.Expires.IsZero() && now.Key == key, err)
	o, err := d.Override(ctx, "api", key)
	check("get", o.Key == key && o.Limits[0] == "7/m", err)
	_, err = d.Override(ctx, "api", "b")
	check("get what is not there", errors.Is(err, rulesdb.ErrNotFound), nil)
	all, err := d.Overrides(ctx, rulesdb.Page{Rule: "api", N: 10, AfterRule: "api", AfterKey: "\x00"})
	check("list", len(all) == 1 && all[0].Key == key, err)
	was, _, err = d.SetOverride(ctx, rulesource.Override{Rule: "api", Key: key, Removed: true, Author: "anna"}, 0)
	check("remove", was.Limits[0] == "7/m", err)
	text, err := d.NewToken(ctx, "anna", "ci", rulesdb.Operator, time.Hour)
	check("token", text != "", err)
	tokens, err := d.Tokens(ctx)
	check("tokens", len(tokens) > 0, err)
	check("revoke", true, d.RevokeToken(ctx, "anna", "ci"))
	_, err = d.Nodes(ctx, time.Minute)
	check("nodes", true, err)
	check("accept", true, d.Accept(ctx, "anna", "restored"))
}

func TestDesk(t *testing.T) {
	db := dbtest.Open(t, "sqlite:"+filepath.Join(t.TempDir(), "a.db"), rulesdb.Options{})
	d := edit(db)
	if _, err := d.Rules(t.Context()); !errors.Is(err, rulesource.ErrEmpty) {
		t.Errorf("no rules: %v", err)
	}
	if _, err := d.Publish(t.Context(), 0, rulesdb.Revision{Name: "stint.yaml", Document: []byte("rules: 5")}); err == nil {
		t.Error("rules that are none were published")
	}
	if _, err := d.Publish(t.Context(), 0, rulesdb.Revision{Name: "stint.yaml", Document: []byte(document)}); err != nil {
		t.Fatal(err)
	}
	exercise(t, d)
}

// TestKey has keys as people write them.
func TestKey(t *testing.T) {
	d := editing(t, `{"rules": [{"name": "one", "key": ["ip"], "limits": ["5/m"]}, {"name": "two", "key": ["ip", "user"], "limits": ["5/m"]}, {"name": "all", "key": [], "limits": ["5/m"]}, {"name": "token", "key": ["header.x-api-key"], "limits": ["5/m"]}]}`)
	two := "9:192.0.2.74:anna"
	hash := "~AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	tests := []struct {
		rule  string
		who   rulesapi.Customer
		want  string
		fails bool
	}{
		{"one", rulesapi.Customer{Key: "192.0.2.7"}, "192.0.2.7", false},
		{"one", rulesapi.Customer{Key: `ip="192.0.2.7"`}, "192.0.2.7", false},
		{"one", rulesapi.Customer{Key: "2001:db8::1"}, "2001:db8::", false},
		{"one", rulesapi.Customer{Key: hash}, hash, false},
		{"one", rulesapi.Customer{Key: "anna"}, "", true},
		{"one", rulesapi.Customer{}, "", true},
		{"one", rulesapi.Customer{Key: "a", Attributes: []string{"ip=192.0.2.7"}}, "", true},
		{"one", rulesapi.Customer{Attributes: []string{"ip=192.0.2.7", "user=a"}}, "", true},
		{"one", rulesapi.Customer{Attributes: []string{"ip"}}, "", true},
		{"two", rulesapi.Customer{Key: `ip="192.0.2.7" user="anna"`}, two, false},
		{"two", rulesapi.Customer{Attributes: []string{"ip=192.0.2.7", "user=anna"}}, two, false},
		{"two", rulesapi.Customer{Key: two}, two, false},
		{"two", rulesapi.Customer{Key: "anna"}, "", true},
		{"all", rulesapi.Customer{}, "", false},
		{"all", rulesapi.Customer{Key: "anna"}, "", true},
		{"token", rulesapi.Customer{Key: "a=b"}, "a=b", false},
		{"token", rulesapi.Customer{Key: "Header.X-Api-Key=a"}, "", true},
		{"token", rulesapi.Customer{Key: "X-Api-Key=a"}, "", true},
		{"token", rulesapi.Customer{Attributes: []string{"header.x-api-key=x-api-key=a"}}, "x-api-key=a", false},
		{"none", rulesapi.Customer{Key: "anna"}, "", true},
	}
	for _, test := range tests {
		got, err := d.Key(t.Context(), test.rule, test.who)
		if got != test.want || (err != nil) != test.fails {
			t.Errorf("%s %+v: %q, %v", test.rule, test.who, got, err)
		}
	}
	if _, err := d.Key(t.Context(), "none", rulesapi.Customer{Key: "a"}); !errors.Is(err, policy.ErrNoRule) {
		t.Errorf("no such rule: %v", err)
	}
	if key, err := d.HeldKey(t.Context(), "none", rulesapi.Customer{Key: "a"}); key != "a" || err != nil {
		t.Errorf("of a rule that is gone: %q, %v", key, err)
	}
}
