package rulesapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/rulesapi"
)

// importing returns an editor of an empty database with rules.
func importing(t *testing.T) *rulesapi.Editor {
	t.Helper()
	db, err := rulesdb.Open("sqlite:"+filepath.Join(t.TempDir(), "a.db"), rulesdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	d := rulesapi.New(db, rules.Decode, nil)
	doc := "rules: [{name: api, key: [account], limits: [5/m]}, {name: login, key: [ip, path], limits: [5/m]}]\n"
	if _, err := d.Publish(t.Context(), 0, rulesdb.Revision{Name: "stint.yaml", Document: []byte(doc)}); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestImportRefuses: nothing is set unless all can be, and the error says which one
// cannot.
func TestImportRefuses(t *testing.T) {
	good := `{"rule":"api","key":"a","limits":["9/s"]}`
	for text, want := range map[string]string{
		`[` + good + `, {"rule":"apo","key":"b","block":true}]`:       `override 2: rule: there is no rule "apo"`,
		good + `{"rule":"api","key":"b","limits":["nine"]}`:           `limit "nine", column 1`,
		good + `{"rule":"api","key":"b"}`:                             "override 2: an override has limits",
		good + `{"rule":"api","key":"b","limits":["9/s"],"for":"1h"}`: `override 2: json: unknown field "for"`,
		good + good: "override 2: its customer is that of override 1",
		good + `{"rule":"api","key":"account=\"a\"","block":true}`: "override 2: its customer is that of override 1",
		good + `{"rule":"login","key":"192.0.2.7","block":true}`:   "override 2: key: the key of rule login is made of ip, path",
		`[` + good:                   "override 2: unexpected EOF",
		`[` + good + `,`:             "override 2: ",
		`[` + good + `]x`:            "override 2: ",
		good + `null`:                "override 2: rule: ",
		`"x"`:                        "override 1: ",
		strings.Repeat("[", 100_000): "override 1: ",
	} {
		d := importing(t)
		n, err := d.ImportOverrides(t.Context(), "anna", strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) || n != 0 {
			t.Errorf("%.90s: %d, %v, want %s", text, n, err, want)
		}
		if held, err := d.Overrides(t.Context(), rulesdb.Page{}); err != nil || len(held) != 0 {
			t.Errorf("%.90s: %d set, %v", text, len(held), err)
		}
	}
}

// TestImportListed: what one database lists as JSON, another one takes, and then
// lists the same; more than one change has, and keys that are no text.
func TestImportListed(t *testing.T) {
	from, to := importing(t), importing(t)
	var all strings.Builder
	const n = 25_000
	for i := range n {
		fmt.Fprintf(&all, `{"rule":"api","key":"customer-%d","limits":["%d/s","1000/h"],"reason":"ticket %d"}`+"\n", i, i%7+1, i)
	}
	if set, err := from.ImportOverrides(t.Context(), "anna", strings.NewReader(all.String())); err != nil || set != n {
		t.Fatal(set, err)
	}
	login, err := from.Key(t.Context(), "login", rulesapi.Customer{Attributes: []string{"ip=192.0.2.7", "path=/a"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []rulesource.Override{{Rule: "api", Key: "a\xff\x00", Block: true}, {Rule: "login", Key: login, Unlimited: true}} {
		if _, _, err := from.SetOverride(t.Context(), o, 3600e9); err != nil {
			t.Fatal(err)
		}
	}
	list := func(d *rulesapi.Editor) []*rulesapi.Override {
		held, err := d.Overrides(t.Context(), rulesdb.Page{N: 2 * n})
		if err != nil {
			t.Fatal(err)
		}
		return rulesapi.List(held, rulesapi.OverrideOf)
	}
	want := list(from)
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if set, err := to.ImportOverrides(t.Context(), "otto", bytes.NewReader(text)); err != nil || set != n+2 {
		t.Fatal(set, err)
	}
	got := list(to)
	for i := range got {
		if got[i].Author != "otto" {
			t.Fatalf("%+v", got[i])
		}
		got[i].Author, got[i].At = want[i].Author, want[i].At
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%d overrides became %d others", len(want), len(got))
	}
}
