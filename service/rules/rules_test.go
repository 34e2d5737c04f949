package rules_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v4"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/internal/testkit/leaktest"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/pages"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/service/rules"
)

// TestMain looks for goroutines that are left over, and ends servers that tests
// share.
func TestMain(m *testing.M) { leaktest.Main(sharing{m}, goleak.Find) }

type sharing struct{ m *testing.M }

func (s sharing) Run() int { return dbtest.Main(s.m) }

// TestBusted reads files that are wrong and holds every line of what is said
// about them. Each line names the file.
func TestBusted(t *testing.T) {
	files, _ := filepath.Glob("testdata/busted/*[nl]")
	if len(files) < 40 {
		t.Fatalf("%d files", len(files))
	}
	for _, file := range files {
		f, err := rules.Read(file)
		if f != nil || err == nil {
			t.Errorf("%s: accepted", file)
			continue
		}
		errs, ok := errors.AsType[rulesfile.Errors](err)
		if !ok || len(errs) == 0 || len(errs) > 101 {
			t.Errorf("%s: %T with %d errors", file, err, len(errs))
		}
		got := err.Error() + "\n"
		for line := range strings.Lines(got) {
			if !strings.HasPrefix(line, file+":") {
				t.Errorf("%s: a line without the file's name: %s", file, line)
			}
		}
		golden.Equal(t, strings.TrimSuffix(file, filepath.Ext(file))+".txt", got)
	}
}

// TestJSON holds JSON files to exactly what policy.Parse says of them.
func TestJSON(t *testing.T) {
	for _, file := range policyFiles(t, "*") {
		data := disk.Read(t, file)
		_, want := policy.Parse(data)
		_, got := rules.Decode("rules.json", data)
		if want == nil && got == nil {
			continue
		}
		wantErrs, _ := errors.AsType[rulesfile.Errors](want)
		gotErrs, _ := errors.AsType[rulesfile.Errors](got)
		if hints := func(e *rulesfile.Error) string {
			// Only the list of known fields has more in it.
			return strings.Replace(e.Error(), "known are trusted_proxies, client_ip_header, store, rules", "known are rules", 1)
		}; !slices.EqualFunc(gotErrs, wantErrs, func(a, b *rulesfile.Error) bool { return hints(a) == b.Error() }) {
			t.Errorf("%s:\n%v\nwant\n%v", file, got, want)
		}
	}
}

// TestSyntax tells JSON from YAML by the name, else by how the text begins.
func TestSyntax(t *testing.T) {
	const inJSON, inYAML = "2:1: want a field's name in quotes, not '}'", "1:1: the file is empty"
	for _, test := range []struct{ name, text, want string }{
		{"a.json", "{\"rules\": [],\n}", inJSON},
		{"a.JSON", "\ufeff{\"rules\": [],\n}", inJSON},
		{"-", " {\n\"rules\": [],}", "2:13: want a field's name in quotes, not '}'"},
		{"stint.conf", "{\"rules\": [],\n}", inJSON},
		{"a.yaml", "{\"rules\": [],\n}", ""},
		{"a.yml", "{\"rules\": [],\n}", ""},
		{"-", "{rules: [],\n}", ""},
		{"-", "\ufeffrules: []", ""},
		{"a.json", "\ufeff{\"rules\": []}", ""},
		{"-", "{}", "no field \"rules\""},
		{"a.json", "", inYAML},
		{"-", "", inYAML},
		{"a.yaml", "\ufeffrules: [x]", "1:9: rules[0]: want a map"},
	} {
		_, err := rules.Decode(test.name, []byte(test.text))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s, %q: %v, want %q", test.name, test.text, err, test.want)
		}
	}
}

func policyFiles(t *testing.T, prefix string) []string {
	files, _ := filepath.Glob("../../policy/rulesfile/testdata/" + prefix + "*.json")
	if len(files) == 0 {
		t.Skip("the root module is not beside this one")
	}
	return files
}

// sameRules fails unless two sets of rules are the same in all that can be seen.
func sameRules(t *testing.T, name string, a, b *policy.Rules) {
	t.Helper()
	for _, c := range append(a.Compare(b), b.Compare(a)...) {
		t.Errorf("%s: %v", name, c)
	}
	if !slices.Equal(a.Names(), b.Names()) {
		t.Errorf("%s: rules %v and %v", name, a.Names(), b.Names())
	}
	for _, rule := range a.Names() {
		if !reflect.DeepEqual(a.Limits(rule), b.Limits(rule)) {
			t.Errorf("%s: layers of %s differ", name, rule)
		}
	}
	if len(a.File().Warnings()) != len(b.File().Warnings()) {
		t.Errorf("%s: %d and %d warnings", name, len(a.File().Warnings()), len(b.File().Warnings()))
	}
	for _, attrs := range requests {
		x, errX := a.Explain(attrs)
		y, errY := b.Explain(attrs)
		if x.String() != y.String() || (errX == nil) != (errY == nil) {
			t.Errorf("%s: %v:\n%v\n%v", name, attrs, x, y)
		}
	}
}

var requests = []policy.Map{
	{},
	{"method": "POST", "path": "/login", "ip": "192.0.2.7"},
	{"method": "GET", "path": "/api/users", "ip": "2001:db8::1", "header.x-api-key": "partner-1"},
	{"method": "GET", "path": "/livez", "ip": "10.1.2.3"},
	{"method": "GET", "path": "/", "ip": "203.0.113.9"},
	{"method": "POST", "path": "/v1/chat/large", "ip": "2001:db8::1", "jwt.org": "acme", "jwt.sub": "batch-7", "jwt.plan": "pro", "tokens": "5000", "header.authorization": "x"},
	{"method": "POST", "path": "/v1/chat/large", "jwt.org": "b", "jwt.sub": "u", "header.internal": "yes"},
	{"path": "/v1%2fchat"},
	{"jwt.n": "a"}, {"jwt.n": "b"}, {"jwt.n": "a", "jwt.m": "b"}, {"jwt.n": "b", "jwt.m": "b"}, {"jwt.n": "5_000"}, {"jwt.n": "1.10"}, {"jwt.n": "true"}, {"jwt.country": "no"},
}

// TestRoundTrip writes every good JSON file of package policy as YAML, in block
// and in flow style, and holds it to meaning the same.
func TestRoundTrip(t *testing.T) {
	for _, file := range policyFiles(t, "good_") {
		data := disk.Read(t, file)
		want := made.Rules(t, string(data))
		for name, text := range map[string]string{
			"as JSON is": string(data),
			"blocks":     toYAML(t, data, false),
			"quoted":     toYAML(t, data, true),
			"CRLF":       strings.ReplaceAll(toYAML(t, data, false), "\n", "\r\n"),
			"BOM":        "\ufeff" + toYAML(t, data, false),
		} {
			f, err := rules.Decode("rules.yaml", []byte(text))
			if err != nil {
				t.Errorf("%s, %s: %v\n%s", file, name, err, text)
				continue
			}
			sameRules(t, file+", "+name, f.Rules, want)
		}
	}
}

// toYAML writes JSON as YAML blocks, with text in quotes or, where YAML reads it as text, without.
func toYAML(t *testing.T, data []byte, quoted bool) string {
	var root yaml.Node
	err := yaml.Unmarshal(data, &root)
	restyle(&root, quoted)
	text, err2 := yaml.Marshal(&root)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func restyle(n *yaml.Node, quoted bool) {
	n.Style = 0
	if quoted && n.Tag == "!!str" {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, below := range n.Content {
		restyle(below, quoted)
	}
}

func decode(t *testing.T, text string) *rules.File {
	t.Helper()
	f, err := rules.Decode("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestWritten holds ways of writing YAML to the plain way.
func TestWritten(t *testing.T) {
	const rule = "rules: [{name: a, key: [ip], limits: [\"5_000 per day\"]%s}]"
	for _, test := range []struct{ text, same string }{
		{", shadow: True", ", shadow: true"},
		{", shadow: FALSE", ""},
		{", cost: 1_000", ", cost: 1000"},
		{", match: {jwt.n: 5_000}", `, match: {jwt.n: "5_000"}`},
		{", match: {jwt.n: 0777}", `, match: {jwt.n: "0777"}`},
		{", match: {jwt.n: 1.10}", `, match: {jwt.n: "1.10"}`},
		{", match: {jwt.n: 1:30}", `, match: {jwt.n: "1:30"}`},
		{", match: {jwt.n: 2026-01-02}", `, match: {jwt.n: "2026-01-02"}`},
		{", match: {jwt.country: no}", `, match: {jwt.country: "no"}`},
		{", match: {jwt.country: [yes, on, off, y]}", `, match: {jwt.country: ["yes", "on", "off", "y"]}`},
		{", match: {jwt.n: !!str true}", `, match: {jwt.n: "true"}`},
		{", match: {jwt.n: ! true}", `, match: {jwt.n: "true"}`},
		{", match: {jwt.n: !!int 7}", `, match: {jwt.n: 7}`},
		{", match: {5: x}", `, match: {"5": x}`},
		{", match: {jwt.n: 'it''s'}", `, match: {jwt.n: "it's"}`},
		{", match: {jwt.n: \"\\u00fc\"}", `, match: {jwt.n: ü}`},
		{", overrides: [{when: &w {jwt.n: a}, limits: 1/s}, {when: {<<: *w, jwt.m: b}, limits: 1/s}]", `, overrides: [{when: {jwt.n: a}, limits: 1/s}, {when: {jwt.m: b, jwt.n: a}, limits: 1/s}]`},
		{", overrides: [{when: &w {jwt.n: a}, limits: 1/s}, {when: {<<: *w, jwt.n: b}, limits: 1/s}]", `, overrides: [{when: {jwt.n: a}, limits: 1/s}, {when: {jwt.n: b}, limits: 1/s}]`},
		{", overrides: [{when: &w {jwt.n: a}, limits: &l [1/s]}, {when: &v {jwt.n: b, jwt.m: b}, limits: *l}, {when: {<<: [*w, *v]}, limits: *l}]", `, overrides: [{when: {jwt.n: a}, limits: 1/s}, {when: {jwt.n: b, jwt.m: b}, limits: 1/s}, {when: {jwt.n: a, jwt.m: b}, limits: 1/s}]`},
	} {
		f := decode(t, strings.Replace(rule, "%s", test.text, 1))
		same := decode(t, strings.Replace(rule, "%s", test.same, 1))
		sameRules(t, test.text, f.Rules, same.Rules)
	}
}

// TestDesign reads the example that the documents show.
func TestDesign(t *testing.T) {
	f := decode(t, pages.Blocks(pages.Read(t, "docs/RULES.md"), "yaml")[0])
	data := disk.Read(t, "../../policy/rulesfile/testdata/good_design.json")
	want := made.Rules(t, string(data))
	sameRules(t, "docs/RULES.md", f.Rules, want)
}

func TestSettings(t *testing.T) {
	f := decode(t, "trusted_proxies: [10.0.0.0/8, 192.0.2.1, '::ffff:192.0.2.2', 2001:db8::/32]\nclient_ip_header: x-real-ip\nstore: redis://:secret@127.0.0.1\nrules: [{name: a, block: true}]\n")
	var got []string
	for _, p := range f.Settings.TrustedProxies {
		got = append(got, p.String())
	}
	if want := []string{"10.0.0.0/8", "192.0.2.1/32", "192.0.2.2/32", "2001:db8::/32"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if f.Settings.ClientIPHeader != "X-Real-Ip" || f.Settings.Store != "redis://:secret@127.0.0.1" || f.Settings.StoreLine != 3 || len(f.Warnings) != 0 {
		t.Errorf("%+v, %v", f.Settings, f.Warnings)
	}
	if f := decode(t, "trusted_proxies: 10.0.0.1\nrules: [{name: a, block: true}]"); len(f.Settings.TrustedProxies) != 1 {
		t.Errorf("%+v", f.Settings)
	}
	for text, want := range map[string]string{
		"trusted_proxies: [10.0.0.1, 0.0.0.0/0]\nrules: [{name: a, block: true}]": "1:18: trusted_proxies: 0.0.0.0/0 is every address",
		"rules: [{name: a, block: true}]\nclient_ip_header: X-Real-IP":            "2:19: client_ip_header has no effect",
	} {
		if f := decode(t, text); len(f.Warnings) != 1 || !strings.HasPrefix(f.Warnings[0].String(), want) {
			t.Errorf("%s: %v", text, f.Warnings)
		}
	}
}

// TestNoFile reads what is no rules file. None of it may hang.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(path("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	huge, err := os.Create(path("huge.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer huge.Close()
	if err := huge.Truncate(100 << 20); err != nil { // a hole: it takes no room
		t.Fatal(err)
	}
	if err := os.WriteFile(path("secret.yaml"), []byte("rules: []"), 0); err != nil {
		t.Fatal(err)
	}
	os.Symlink(path("loop"), path("loop"))
	os.Symlink(path("gone"), path("link"))
	for _, test := range []struct {
		name, want string
		is         error
	}{
		{dir, "a directory", nil},
		{path("pipe"), "not a regular file", nil},
		{"/dev/zero", "not a regular file", nil},
		{path("huge.yaml"), "104857600 bytes: a rules file has at most 32 MiB", nil},
		{path("none.yaml"), "no such file", fs.ErrNotExist},
		{path("link"), "no such file", fs.ErrNotExist},
		{path("loop"), "too many levels", nil},
		{path("secret.yaml"), "permission denied", fs.ErrPermission},
		{"", "no such file", fs.ErrNotExist},
	} {
		if test.is == fs.ErrPermission && os.Getuid() == 0 {
			continue // root reads everything
		}
		_, err := rules.Read(test.name)
		if err == nil || !strings.HasPrefix(err.Error(), test.name+": "+test.want) || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}

// TestBounds reads texts that take memory or time for nothing.
func TestBounds(t *testing.T) {
	long := strings.Repeat("a", 200_000)
	for name, test := range map[string]struct{ text, want string }{
		"bytes":    {"rules: [" + strings.Repeat(" ", 32<<20) + "]", "at most 32 MiB"},
		"values":   {"rules: [" + strings.Repeat("0,", 1<<20) + "]", "more than 1048576 values"},
		"block":    {"rules:\n" + strings.Repeat("- a\n", 1<<20+1), "more than 1048576 values"},
		"word's":   {"rules: [it's" + strings.Repeat(", 0", 1<<20) + ", it's]", "more than 1048576 values"},
		"closes":   {"a: [\",\"" + strings.Repeat(", 0", 1<<20) + ", \"\"]", "more than 1048576 values"},
		"comma":    {"a: [','" + strings.Repeat(", 0", 1<<20) + ", '']", "more than 1048576 values"},
		"open":     {"a: ['\nb: [1, \"'" + strings.Repeat(", 0", 1<<20) + ", \"\"]", "more than 1048576 values"},
		"bare":     {"- a, \"b: [0" + strings.Repeat(", 0", 1<<20) + "]\"", "more than 1048576 values"},
		"dash":     {"a: [x\n- \"y" + strings.Repeat(", 0", 1<<20) + "\"]", "more than 1048576 values"},
		"ends":     {"a: [0 # : \"\u2028" + strings.Repeat(", 0", 1<<20) + "] # \"", "more than 1048576 values"},
		"escape":   {"a: [\"\\\"\"" + strings.Repeat(", 0", 1<<20) + ", \"\"]", "more than 1048576 values"},
		"single":   {"a: ['\\'" + strings.Repeat(", 0", 1<<20) + ", '']", "more than 1048576 values"},
		"empty":    {"rules: {" + strings.Repeat(",", 1<<20) + "}", "more than 1048576 values"},
		"laughs":   {laughs(), "more errors follow"},
		"errors":   {"rules: [" + strings.Repeat("0,", 100_000) + "]", "more errors follow"},
		"proxies":  {"rules: []\ntrusted_proxies: [" + strings.Repeat("x,", 100_000) + "]", "trusted_proxies[99]: "},
		"brackets": {strings.Repeat("[", 1<<19), "nested deeper than 64"},
		"dashes":   {strings.Repeat("- ", 1<<19), "nested deeper than 64"},
		"question": {strings.Repeat("? ", 1<<19), "nested deeper than 64"},
		"fields":   {strings.Repeat("a: ", 1<<19), "a colon where no field can begin"},
		"anchors":  {strings.Repeat("&a ", 1<<19), "1:4: something follows the end"},
		"blanks":   {strings.Repeat("\n", 1<<20), "the file is empty"},
		"comments": {strings.Repeat("# c\n", 1<<18), "the file is empty"},
		"quote":    {`"` + strings.Repeat("a", 1<<20), "1:1: text without the quote that ends it"},
		"word":     {strings.Repeat("a", 1<<20), "want a map, not text"},
		"field":    {long + ": 1", `unknown field "aaa`},
		"twice":    {"rules: [{name: a, match: {header." + long + ": 1, header." + long + ": 2}}]", "twice"},
		"mode":     {"rules: [{name: a, key: [ip], limits: [1/s], mode: " + long + "}]", "aaa…"},
		"alias":    {"rules: *" + long, "aaa…"},
		"tag":      {"rules: !" + long + " x", "aaa…"},
	} {
		_, err := rules.Decode("test.yaml", []byte(test.text))
		errs, ok := errors.AsType[rulesfile.Errors](err)
		if !ok || len(errs) > 201 || len(err.Error()) > 64<<10 || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %d errors, %d bytes: %.200s", name, len(errs), len(err.Error()), err)
		}
	}
}

// TestQuotedValues reads more commas than a file may have values, in quotes, where stint
// import writes text and beside words with an apostrophe.
func TestQuotedValues(t *testing.T) {
	commas := strings.Repeat(",:[{", 1<<19)
	for _, text := range []string{`"` + commas + `"`, `'` + commas + `''` + commas + `'`, `"\"` + commas + `"`} {
		for _, place := range []string{"TEXT", "[it's, TEXT]", "{when: {user: TEXT}}", "[{user: [a, TEXT, b]}]"} {
			if _, err := rules.ReadYAML([]byte("rules:\n  - name: a\n    it: " + strings.Replace(place, "TEXT", text, 1) + "\n")); err != nil {
				t.Errorf("%s: %.200v", place, err)
			}
		}
		if _, err := rules.ReadYAML([]byte("all:\n  - {when: [" + text + "]}\n")); err != nil {
			t.Errorf("%.200v", err)
		}
	}
}

// TestAliasedValues reads a list of values that many rules have by an alias: it counts once.
func TestAliasedValues(t *testing.T) {
	const n = 2100 // squared, more than a file may have values
	text := strings.Builder{}
	text.WriteString("rules:\n")
	for i := range n {
		values := "*users"
		if i == 0 {
			values = "&users [" + strings.Repeat("x, ", n-1) + "y]"
		}
		fmt.Fprintf(&text, "  - {name: r%d, unless: {header.user: %s}, match: {path: /%d}, key: [ip], limits: [5/m]}\n", i, values, i)
	}
	f, err := rules.Decode("test.yaml", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	p := made.Policy(t, memstore.New(memstore.Options{}), f.Rules, policy.Options{})
	for user, want := range map[string]int{"x": 0, "y": 0, "z": 1} {
		var r policy.Result
		err := p.Decide(t.Context(), policy.Map{"path": "/2099", "ip": "192.0.2.7", "header.user": user}, 1, &r)
		if err != nil || len(r.Rules) != want {
			t.Errorf("user %s: %d limits, %v", user, len(r.Rules), err)
		}
	}
	if _, err := rules.ReadYAML([]byte(text.String())); err == nil {
		t.Error("who reads the tree goes through each alias, and may")
	}
}

// laughs returns lists of 30 lists, six times over: 729 million values.
func laughs() string {
	text := "rules:\n  - match: &l0 [x" + strings.Repeat(", x", 29) + "]\n"
	for i := range 6 {
		alias := fmt.Sprintf("*l%d", i)
		text += fmt.Sprintf("  - match: &l%d [%s]\n", i+1, alias+strings.Repeat(", "+alias, 29))
	}
	return text
}

// TestLarge finds 100,000 overrides of a line each within the bounds, and reads
// some of them.
func TestLarge(t *testing.T) {
	text := []byte("rules:\n  - name: a\n    key: [header.x-api-key]\n    limits: 1/s\n    overrides:\n")
	var some []byte
	for i := range 100_000 {
		if i == 5_000 {
			some = slices.Clone(text)
		}
		text = fmt.Appendf(text, "      - {when: {header.x-api-key: partner-%d}, limits: [\"100/s\"]}\n", i)
	}
	if err := rules.Readable(text); err != nil {
		t.Error(err)
	}
	f := decode(t, string(some))
	x, err := f.Rules.Explain(policy.Map{"header.x-api-key": "partner-4999"})
	if err != nil || !strings.Contains(x.String(), "100/1s") {
		t.Errorf("%v, %v", x, err)
	}
}

// TestSchema holds the schema to being rulesfile.Schema and the fields of Settings.
func TestSchema(t *testing.T) {
	var ours, theirs map[string]any
	if err := json.Unmarshal([]byte(rules.Schema()), &ours); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(rulesfile.Schema), &theirs); err != nil {
		t.Fatal(err)
	}
	properties := ours["properties"].(map[string]any)
	for _, name := range rules.SettingNames {
		if properties[name] == nil {
			t.Errorf("no %s", name)
		}
		delete(properties, name)
	}
	if ours["$id"] == theirs["$id"] {
		t.Error("two schemas of one name")
	}
	ours["$id"] = theirs["$id"]
	if !reflect.DeepEqual(ours, theirs) {
		t.Error("the rest is not rulesfile.Schema")
	}
}
