package rulesapi_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"
	"github.com/stint-dev/stint/service/rulesapi"
)

// editing returns an editor of an empty database with rules.
func editing(t testing.TB, document string) *rulesapi.Editor {
	t.Helper()
	d := edit(dbtest.Open(t, "sqlite:"+filepath.Join(t.TempDir(), "a.db"), rulesdb.Options{}))
	if _, err := d.Publish(t.Context(), 0, rulesdb.Revision{Name: "stint.yaml", Document: []byte(document)}); err != nil {
		t.Fatal(err)
	}
	return d
}

// loading returns one into which tests load overrides.
func loading(t testing.TB) *rulesapi.Editor {
	t.Helper()
	return editing(t, "rules: [{name: api, key: [account], limits: [5/m]}, {name: login, key: [ip, path], limits: [5/m]}]\n")
}

const columns = "rule,key,limits\n"

// customers are overrides of so many customers, as CSV.
func customers(n int, limit string) string {
	var all strings.Builder
	all.WriteString(columns)
	for i := range n {
		fmt.Fprintf(&all, "api,customer-%d,%s\n", i, limit)
	}
	return all.String()
}

// TestLoadRefuses: nothing is set unless all can be, and each error has its line and
// column.
func TestLoadRefuses(t *testing.T) {
	const good = "api,a,9/s\n"
	for text, want := range map[string]string{
		columns + good + "apo,b,block\n":                                          `line 3, column 1: there is no rule "apo"`,
		columns + "api,b,9/s; nine\n":                                             `line 2, column 7: limit "nine", column 1`,
		columns + "api,b,\n":                                                      "line 2, column 7: missing: write one such as 100/m",
		columns + good + "api,b\n":                                                "line 3, column 1: 2 fields, and the first line names 3",
		columns + good + "api,b,5/m,50/h\n":                                       "line 3, column 1: 4 fields, and the first line names 3: several limits stand in one field",
		columns + good + "api,b\"c,5/m\n":                                         "line 3, column 6: bare",
		columns + good + "api,\"b\nc\",5/m\napi,d,x\n":                            "line 5, column 7: limit",
		columns + good + good:                                                     "line 3, column 1: the customer of line 2 again",
		columns + good + "api,\"account=\"\"a\"\"\",block\n":                      "line 3, column 1: the customer of line 2 again",
		columns + "login,192.0.2.7,block\n":                                       "line 2, column 7: the key of rule login is made of ip, path",
		columns + "api,a\x00b,block\n":                                            "line 2, column 5: it has bytes that are no text",
		columns + "api,a\xffb,block\n":                                            "line 2, column 5: it has bytes that are no text",
		columns + "api,,block\n":                                                  "line 2, column 5: empty",
		"rule,limits,key_base64\napi,block," + strings.Repeat("a2sx", 200) + "\n": "line 2, column 1: key: 600 bytes",
		columns + good + "api,\"b,5/m\n" + strings.Repeat("api,c,5/m\n", 9000):    "line 3, column 1: a row of more than 64 KiB begins here",
		columns + good + "api,\"b" + strings.Repeat("\n", 100_000) + "\",5/m\n":   "line 3, column 1: a row of more than 64 KiB begins here",
		columns + good + strings.Repeat("\r", 200_000) + "api,x,5/m\n":            "line 3, column 1: a row of more than 64 KiB begins here",
		"\ufeff" + strings.Repeat("\n", 100_000) + columns + good + "api,b,\n":    "line 100003, column 7: missing",
		columns + strings.Repeat("\r\n", 50_000) + good + "api,b,\n":              "line 50003, column 7: missing",
		columns + strings.Repeat("\n", 100_000):                                   "there are no overrides",
		strings.Repeat("\n", 100_000):                                             "line 1, column 1: the first line needs the columns",
		columns:                                                                   "there are no overrides",
		"":                                                                        "the first line needs the columns",
		"\r\n\n":                                                                  "line 1, column 1: the first line needs the columns",
		"api,a,9/s\n":                                                             `line 1, column 1: "api" is no column`,
		"rule,key,limits,rule\n" + good:                                           `line 1, column 17: "rule" is no column, or is there twice`,
		"rule,limits\napi,5/m\n":                                                  "line 1, column 1: the first line needs the columns rule, key and limits",
		"rule,key,limits,expires\napi,a,block,tomorrow\n":                         "line 2, column 13: \"tomorrow\" is no time",
		"rule,key,limits,expires\napi,a,block,0001-01-01T00:00:00Z\n":             "line 2, column 13: \"0001-01-01T00:00:00Z\" is no time",
		"rule,key,limits,expires\napi,a,block,1970-01-01T00:00:00Z\n":             "line 2, column 13: \"1970-01-01T00:00:00Z\" is no time",
		"rule,key,limits,reason\napi,a,block,\"b\nc\"\n":                          "line 2, column 13: a control character",
		"rule,key,limits,key_base64\napi,a,block,YQ==\n":                          "line 2, column 13: there is a key beside it",
		"rule,limits,key_base64\napi,block,???\n":                                 "line 2, column 11: this is no base64",
		columns + strings.Repeat("api,a,x\n", 100):                                "and perhaps more",
	} {
		d := loading(t)
		n, err := d.LoadOverrides(t.Context(), "anna", strings.NewReader(text), nil)
		if err == nil || !errors.Is(err, rulesdb.ErrInput) || !strings.Contains(err.Error(), want) || n.Set != 0 {
			t.Errorf("%.90q: %d, %v, want %s", text, n, err, want)
		}
		if held, err := d.Overrides(t.Context(), rulesdb.Page{}); err != nil || len(held) != 0 {
			t.Errorf("%.90q: %d set, %v", text, len(held), err)
		}
	}
}

// exported returns the overrides of an editor as CSV.
func exported(t *testing.T, d *rulesapi.Editor) string {
	t.Helper()
	var b strings.Builder
	if err := d.ExportOverrides(t.Context(), rulesdb.Page{}, &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestLoadExported: what one database exports, another one loads, and then exports
// the same.
func TestLoadExported(t *testing.T) {
	from, to := loading(t), loading(t)
	var all strings.Builder
	all.WriteString("\ufeffrule,reason,limits,key\r\n")
	const n = 12_000
	for i := range n {
		fmt.Fprintf(&all, "api,ticket %d,%d/s; 1000/h,customer-%d\r\n", i, i%7+1, i)
	}
	if set, err := from.LoadOverrides(t.Context(), "anna", strings.NewReader(all.String()), nil); err != nil || set.Set != n {
		t.Fatal(set, err)
	}
	login, err := from.Key(t.Context(), "login", rulesapi.Customer{Attributes: []string{"ip=192.0.2.7", "path=/a\"b"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []rulesource.Override{
		{Rule: "api", Key: "a\xff\x00", Block: true}, {Rule: "api", Key: "a\r\nb", Block: true}, {Rule: "api", Key: "a, \"b\"\n", Reason: `"why", he asked`, Block: true},
		{Rule: "api", Key: `account="a"`, Unlimited: true}, {Rule: "login", Key: login, Unlimited: true},
	} {
		if _, _, err := from.SetOverride(t.Context(), o, 3600e9); err != nil {
			t.Fatal(err)
		}
	}
	want := exported(t, from)
	if set, err := to.LoadOverrides(t.Context(), "otto", strings.NewReader(want), nil); err != nil || set.Set != n+5 {
		t.Fatal(set, err)
	}
	if got := exported(t, to); got != want {
		t.Errorf("%d bytes became %d others", len(want), len(got))
	}
	for _, key := range []string{"a\xff\x00", "a\r\nb", `account="a"`} {
		if o, err := to.Override(t.Context(), "api", key); err != nil || o.Author != "otto" || o.Expires.IsZero() {
			t.Errorf("%q: %+v, %v", key, o, err)
		}
	}
}

// TestLoadOver: a row whose time is over leaves a live override as it is, and is counted, as are rows with
// limits in flight.
func TestLoadOver(t *testing.T) {
	d := loading(t)
	if _, _, err := d.SetOverride(t.Context(), rulesource.Override{Rule: "api", Key: "vip", Unlimited: true}, 0); err != nil {
		t.Fatal(err)
	}
	const over = "rule,key,limits,expires\napi,vip,500/m,2025-12-31T00:00:00Z\n"
	for text, want := range map[string]rulesapi.Loaded{
		over: {Over: 1},
		over + "api,a,10 in flight,\napi,b,9/s,\n": {Set: 2, Over: 1, InFlight: 1},
	} {
		if n, err := d.LoadOverrides(t.Context(), "anna", strings.NewReader(text), nil); err != nil || n != want {
			t.Errorf("%+v, %v, want %+v", n, err, want)
		}
	}
	if o, err := d.Override(t.Context(), "api", "vip"); err != nil || !o.Unlimited {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestExactKeys: a key that begins with the name of its attribute is refused if a person writes it, and
// not if it is made of attributes or exported.
func TestExactKeys(t *testing.T) {
	server, db, tokens := serve(t)
	d := remote(t, server, tokens["operator"])
	if _, err := d.Key(t.Context(), "api", rulesapi.Customer{Key: "account=a"}); err == nil {
		t.Error("account=a was taken")
	}
	if status, answer := ask(t, server, tokens["operator"], "PUT", "/v1/block?rule=api&key=account%3Da", "", "{}"); status != 422 {
		t.Error(status, answer)
	}
	key, err := d.Key(t.Context(), "api", rulesapi.Customer{Attributes: []string{"account=account=a"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.SetOverride(t.Context(), rulesource.Override{Rule: "api", Key: key, Limits: []string{"9/s"}}, 0); err != nil {
		t.Error(err)
	}
	if n, err := d.LoadOverrides(t.Context(), "", strings.NewReader(exported(t, d)), nil); err != nil || n.Set != 1 {
		t.Error(n, err)
	}
	if o, err := db.Override(t.Context(), "api", "account=a"); err != nil || o.Limits[0] != "9/s" {
		t.Errorf("%+v, %v", o, err)
	}
}

// FuzzLoad: whatever is loaded is refused, or exported as what loads to the same.
func FuzzLoad(f *testing.F) {
	for _, text := range []string{
		columns + "api,a,9/s\n", columns + "api,\"a,\"\"b\nc\",9/s; 5/m\n", "\ufeff" + columns + "api,a,block\r\n", columns + "login,\"ip=\"\"192.0.2.7\"\" path=\"\"/a\"\"\",unlimited\n",
		"key_base64,rule,limits,expires,reason\n/wA=,api,block,2099-01-31T12:00:00.5+02:00,why\n", columns + "api,\"a,9/s\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		from := loading(t)
		n, err := from.LoadOverrides(t.Context(), "anna", strings.NewReader(text), nil)
		if err != nil {
			if !errors.Is(err, rulesdb.ErrInput) || n.Set != 0 {
				t.Fatal(n, err)
			}
			return
		}
		want := exported(t, from)
		if strings.Count(want, "\n") == 1 {
			return // all have ended
		}
		to := loading(t)
		if _, err := to.LoadOverrides(t.Context(), "anna", strings.NewReader(want), nil); err != nil {
			t.Fatalf("%q: %v", want, err)
		}
		if got := exported(t, to); got != want {
			t.Fatalf("%q became %q", want, got)
		}
	})
}

// TestLoadServed: a server loads what a client sends as a stream, and what it refuses,
// or what ends too early, changes nothing.
func TestLoadServed(t *testing.T) {
	server, db, tokens := serve(t)
	d := remote(t, server, tokens["operator"])
	const n = 12_000
	last := 0
	if set, err := d.LoadOverrides(t.Context(), "", strings.NewReader(customers(n, "9/s")), func(read, _ int) { last = read }); err != nil || set.Set != n || last != n+1 {
		t.Fatal(set, last, err)
	}
	if held, err := db.Overrides(t.Context(), rulesdb.Page{N: 2 * n}); err != nil || len(held) != n || held[0].Author != "the operator" {
		t.Fatal(len(held), err)
	}
	if _, err := d.LoadOverrides(t.Context(), "", strings.NewReader(columns+"api,new,7/m\napi,new,nine\n"), nil); !errors.Is(err, rulesdb.ErrInput) || !strings.Contains(err.Error(), "line 3, column 9: limit") {
		t.Error(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v1/overrides", strings.NewReader(columns))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+tokens["operator"])
	r.Header.Set("Content-Encoding", "gzip")
	if resp, err := server.Client().Do(r); err != nil || resp.StatusCode != http.StatusUnsupportedMediaType {
		t.Error(resp, err)
	}
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/overrides HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n%sapi,new,7/m\n", tokens["operator"], columns)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.Contains(string(answer), " 400 ") || !strings.Contains(string(answer), "the body ended too early") {
		t.Errorf("%s, %v", answer, err)
	}
	if o, err := db.Override(t.Context(), "api", "new"); !errors.Is(err, rulesdb.ErrNotFound) {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestLoadUnread: a client does not ask whether to send what it loads. net/http resets the
// connection of one that does when the handler leaves the rest unread, and the answer, which
// says what is wrong, may be lost.
func TestLoadUnread(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Expect")
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Stint-Admin", "1")
		fmt.Fprint(w, `{"set":1}`)
	}))
	defer server.Close()
	if n, err := edit(dial(t, server, "")).LoadOverrides(t.Context(), "", strings.NewReader(columns), nil); err != nil || n.Set != 1 {
		t.Fatal(n, err)
	}
	if expect := <-asked; expect != "" {
		t.Errorf("Expect: %s", expect)
	}
}

// TestLoadUnreadable: of a file that cannot be read to its end, a client sends no end, so
// that nothing can have been done.
func TestLoadUnreadable(t *testing.T) {
	server, db, tokens := serve(t)
	bad := errors.New("a bad sector")
	from := io.MultiReader(strings.NewReader(columns+"api,new,7/m\n"), iotest.ErrReader(bad))
	if _, err := remote(t, server, tokens["operator"]).LoadOverrides(t.Context(), "", from, nil); !errors.Is(err, bad) || errors.Is(err, rulesdb.ErrAmbiguous) {
		t.Error(err)
	}
	server.Close() // the server has ended what it was asked
	if o, err := db.Override(t.Context(), "api", "new"); !errors.Is(err, rulesdb.ErrNotFound) {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestLoadTurns: while a server loads, it refuses another load, and says so.
func TestLoadTurns(t *testing.T) {
	server, _, tokens := serve(t)
	body, send := io.Pipe()
	r, answer := httptest.NewRequest("POST", "/v1/overrides", body), httptest.NewRecorder()
	r.Header.Set("Authorization", "Bearer "+tokens["operator"])
	var first sync.WaitGroup
	first.Go(func() { server.Config.Handler.ServeHTTP(answer, r) })
	if _, err := io.WriteString(send, columns); err != nil { // it reads, so it has its turn
		t.Fatal(err)
	}
	if status, answer := ask(t, server, tokens["operator"], "POST", "/v1/overrides", "", columns+"api,b,5/m\n"); status != 503 || !strings.Contains(fmt.Sprint(answer), "one at a time") {
		t.Errorf("%d %v", status, answer)
	}
	if _, err := io.WriteString(send, "api,a,5/m\n"); err != nil {
		t.Fatal(err)
	}
	send.Close()
	if first.Wait(); answer.Code != 200 {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	if status, answer := ask(t, server, tokens["operator"], "POST", "/v1/overrides", "", columns+"api,b,5/m\n"); status != 200 {
		t.Errorf("%d %v", status, answer)
	}
}

// A meddler has something done when the first text is written, and keeps all of it.
type meddler struct {
	strings.Builder
	do func()
}

func (m *meddler) Write(p []byte) (int, error) {
	if m.Len() == 0 {
		m.do()
	}
	return m.Builder.Write(p)
}

// TestExportOneMoment: while a server exports, all overrides change. The export has those of
// before alone. One that breaks off is an error.
func TestExportOneMoment(t *testing.T) {
	server, db, tokens := serve(t)
	served, local := remote(t, server, tokens["operator"]), edit(db)
	const n = 5000
	load := func(limit string) {
		t.Helper()
		if set, err := local.LoadOverrides(t.Context(), "", strings.NewReader(customers(n, limit)), nil); err != nil || set.Set != n {
			t.Fatal(set, err)
		}
	}
	load("7/m")
	out := &meddler{do: func() { load("9/m") }}
	if err := served.ExportOverrides(t.Context(), rulesdb.Page{Rule: "api", Prefix: "customer-"}, out); err != nil {
		t.Fatal(err)
	}
	if before, after := strings.Count(out.String(), ",7/m,"), strings.Count(out.String(), ",9/m,"); before != n || after != 0 {
		t.Errorf("%d rows of before, %d of after", before, after)
	}
	out = &meddler{do: server.CloseClientConnections}
	if err := served.ExportOverrides(t.Context(), rulesdb.Page{}, out); err == nil && strings.Count(out.String(), "\n") != n+1 {
		t.Error("half of it is no error")
	}
}
