package commandline_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/cmd/internal/commandline"
)

// tool is a program with one of everything.
type tool struct {
	Copy copyCmd `cmd:"" help:"Copy files."`
	Sub  struct {
		One oneCmd `cmd:"" help:"The first."`
		Two oneCmd `cmd:"" help:"The second."`
	} `cmd:"" help:"Commands below."`
	Words   wordsCmd `cmd:"" hidden:""`
	Version bool     `alone:"" help:"Print the version."`
}

type copyCmd struct {
	shared `embed:""`
	Files  []string          `arg:"" optional:"" name:"file" help:"What is copied."`
	Times  int               `short:"n" default:"3" help:"How often (${default})."`
	Bytes  int64             `env:"TOOL_BYTES" help:"How many."`
	Wait   time.Duration     `default:"2s" group:"Pace" help:"Between two."`
	Tag    []string          `help:"What to call it."`
	Note   []string          `sep:"none" placeholder:"TEXT" help:"A remark."`
	Field  map[string]string `help:"More."`
	Form   string            `enum:"text,json" default:"text" help:"How it is written."`
	Dry    bool              `short:"d" help:"Copy nothing."`
	Output string            `short:"o" help:"Where to."`
}

type shared struct {
	TLSCert string `env:"TOOL_CERT" placeholder:"FILE" help:"A certificate."`
}

func (copyCmd) Help() string { return "Copies.\n\nFor example:\n\n    tool copy a b" }

type oneCmd struct {
	Name string `arg:"" help:"Of what."`
	Who  string `required:"" placeholder:"NAME" help:"By whom."`
}

type wordsCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// TestRead reads lines. What comes back is the command and the fields that are
// not as they are without a word, or the error.
func TestRead(t *testing.T) {
	for _, try := range []struct{ line, want string }{
		{"copy", "copy"},
		{"copy a b", "copy Files=[a b]"},
		{"copy a -d b", "copy Dry=true Files=[a b]"},
		{"copy - -- -d --x", "copy Files=[- -d --x]"},
		{"-- copy -d", "copy Files=[-d]"},
		{"copy --times=4 --times 0x10", "copy Times=16"},
		{"copy -n5", "copy Times=5"},
		{"copy -dn5", "copy Dry=true Times=5"},
		{"copy -n=5", "copy Times=5"},
		{"copy -dd", "copy Dry=true"},
		{"copy -d=no", "copy"},
		{"copy --dry=YES", "copy Dry=true"},
		{"copy --bytes=-5", "copy Bytes=-5"},
		{"copy --tag a,b --tag c\\,d", "copy Tag=[a b c,d]"},
		{"copy --tag=", "copy"},
		{"copy --note a,b --note=", "copy Note=[a,b ]"},
		{"copy --field a=b=c --field d=", "copy Field=map[a:b=c d:]"},
		{"copy --wait 1m30s", "copy Wait=1m30s"},
		{"copy --form json --output=-x", "copy Form=json Output=-x"},
		{"copy --tls-cert c.pem", "copy TLSCert=c.pem"},
		{"sub one x --who me", "sub one Name=x Who=me"},
		{"words -x --help --", "unknown flag -x"},
		{"words -- -x --help --", "words Words=[-- -x --help --]"},
		{"words a -x", "words Words=[a -x]"},

		{"--help", "alone: help"},
		{"copy -h", "copy alone: help"},
		{"--version copy --help", "copy alone: version"},
		{"sub one --help", "sub one alone: help"},
		{"copy --form=xml --help", "copy alone: help"},

		{"", "missing command: one of copy, sub"},
		{"sub", "missing command: one of one, two"},
		{"sub one", "missing flags: --who=NAME"},
		{"sub one --who=me", "missing arguments: <name>"},
		{"sub one a b --who=me", "unexpected argument b"},
		{"cpy", `unknown command cpy, did you mean "copy"?`},
		{"sub noe", `unknown command noe`}, // no word of three letters is two away from what was meant
		{"words2", "unknown command words2"},
		{"sub one a postgres://me:pass@word@h/db?sslkey=x --who=me", "unexpected argument postgres://h/db"},
		{"redis//:pass@h", "unknown command …"},
		{"postgres://me:pa?ss@h/db", "unknown command …"},
		{"my-secret-rules.yaml", "unknown command my-secret-rules.yaml"},
		{"password=x", "unknown command …"},
		{"copy --times", "--times: its value is missing"},
		{"copy --note", "--note: its value is missing"},
		{"copy --times --dry", "--times: its value is missing: --dry is a flag; to give it as the value, write --times=--dry"},
		{"copy --times=many", `--times: want a whole number, not "many"`},
		{"copy --times=9223372036854775808", "--times: 9223372036854775808 does not fit into 64 bits"},
		{"copy --wait=5", `--wait: want a duration such as 10s or 5m, not "5"`},
		{"copy --dry=maybe", `--dry: want true or false, not "maybe"`},
		{"copy --field a", `--field: want NAME=VALUE, not "a"`},
		{"copy --form=xml", `--form must be one of "text","json" but got "xml"`},
		{"copy --form=", `--form must be one of "text","json" but got ""`},
		{"copy --tiems=4", `unknown flag --tiems, did you mean "--times"?`},
		{"copy --t=4", `unknown flag --t, did you mean one of "--tls-cert", "--times", "--tag"?`},
		{"copy -x", `unknown flag -x`},
		{"copy -dx", `unknown flag -x`},
		{"copy ---", `unknown flag ---`},
		{"copy --=x", `unknown flag --`},
		{"copy -\xff", `unknown flag "-\xff"`},
		{"\x1b[2J", `unknown command "\x1b[2J"`},
		{strings.Repeat("a", 500), "unknown command " + strings.Repeat("a", 77) + "…"},
	} {
		words := strings.Split(try.line, " ")
		if try.line == "" {
			words = nil
		}
		if got := read(words); got != try.want {
			t.Errorf("%q:\n got %s\nwant %s", try.line, got, try.want)
		}
	}
}

// read reads a line and writes what came of it.
func read(words []string) string {
	var to, untouched tool
	at, alone, err := commandline.New("tool", "A tool.", &to).Read(words)
	switch {
	case err != nil:
		return err.Error()
	case alone != nil:
		return strings.TrimSpace(at.Path() + " alone: " + alone.Name)
	}
	before := fields(reflect.ValueOf(&untouched.Copy).Elem())
	maps.Copy(before, map[string]string{"Times": "3", "Wait": "2s", "Form": "text"})
	out := at.Path()
	now := fields(reflect.ValueOf(at.Target()).Elem())
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if now[name] != before[name] {
			out += " " + name + "=" + now[name]
		}
	}
	return out
}

func fields(of reflect.Value) map[string]string {
	all := map[string]string{}
	for _, f := range reflect.VisibleFields(of.Type()) {
		if !f.Anonymous {
			all[f.Name] = fmt.Sprint(of.FieldByIndex(f.Index).Interface())
		}
	}
	return all
}

// TestEnvironment reads what the line does not say from the environment.
func TestEnvironment(t *testing.T) {
	t.Setenv("TOOL_CERT", "env.pem")
	t.Setenv("TOOL_BYTES", "many")
	for _, try := range []struct{ line, want string }{
		{"copy --bytes 5", "copy Bytes=5 TLSCert=env.pem"},
		{"copy --bytes 5 --tls-cert=mine", "copy Bytes=5 TLSCert=mine"},
		{"copy", `--bytes: want a whole number, not "many" (from the environment variable TOOL_BYTES)`},
		{"sub one x --who=me", "sub one Name=x Who=me"},
	} {
		if got := read(strings.Fields(try.line)); got != try.want {
			t.Errorf("%q:\n got %s\nwant %s", try.line, got, try.want)
		}
	}
}

// TestInstead has values of which one stands for the other: what the line says
// counts before what the environment says of the other.
func TestInstead(t *testing.T) {
	type places struct {
		Look struct {
			File   string `env:"TOOL_FILE" instead:"place"`
			Server string `env:"TOOL_SERVER" instead:"place"`
			Token  string `env:"TOOL_TOKEN"`
		} `cmd:""`
	}
	t.Setenv("TOOL_FILE", "env-file")
	t.Setenv("TOOL_SERVER", "env-server")
	t.Setenv("TOOL_TOKEN", "env-token")
	for _, try := range []struct{ line, file, server string }{
		{"look", "env-file", "env-server"},
		{"look --file a", "a", ""},
		{"look --server b", "", "b"},
		{"look --server b --file a", "a", "b"},
	} {
		var to places
		if _, _, err := commandline.New("tool", "A tool.", &to).Read(strings.Fields(try.line)); err != nil {
			t.Fatal(err)
		}
		if l := to.Look; l.File != try.file || l.Server != try.server || l.Token != "env-token" {
			t.Errorf("%q: %+v", try.line, l)
		}
	}
}

// TestHelp compares the help of a command.
func TestHelp(t *testing.T) {
	t.Setenv("COLUMNS", "60")
	program := commandline.New("tool", "A tool.", &tool{})
	var b strings.Builder
	if err := program.Children[0].WriteHelp(&b); err != nil {
		t.Fatal(err)
	}
	const want = `Usage: tool copy [<file> ...] [flags]

Copy files.

Copies.

For example:

    tool copy a b

Arguments:
  [<file> ...]    What is copied.

Flags:
  -h, --help               Show context-sensitive help.

      --tls-cert=FILE      A certificate ($TOOL_CERT).
  -n, --times=3            How often (3).
      --bytes=INT64        How many ($TOOL_BYTES).
      --tag=TAG,...        What to call it.
      --note=TEXT          A remark.
      --field=KEY=VALUE    More.
      --form="text"        How it is written.
  -d, --dry                Copy nothing.
  -o, --output=STRING      Where to.

Pace
  --wait=2s    Between two.
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

// FuzzRead reads what a shell could hand over: no line panics, and a line that is
// read twice says the same twice.
func FuzzRead(f *testing.F) {
	for _, line := range []string{"copy\x00a\x00-dn5", "sub\x00one\x00--who=me\x00x", "words\x00--\x00-x", "-\xff", "--=", "copy\x00--field=\x00--tag=\\,,"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, "\x00")
		if one, two := read(words), read(words); one != two {
			t.Errorf("%q: %s, then %s", words, one, two)
		}
	})
}
