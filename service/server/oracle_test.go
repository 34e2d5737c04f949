package server_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/service/testkit/wire"
)

// The oracle of what two parties read. Rules block some values; real programs behind
// say what they understood of a request. What passes, none of them may understand as a
// blocked value; and what is blocked is what the program would have understood so.

const oracleRules = `
trusted_proxies: [TRUSTED]
attributes: [key]
ignore_path_case: CASE
rules:
`

// oracleBlocks are what the rules block, by what requests vary: an interface refuses rules
// that look at what it cannot give.
var oracleBlocks = []struct{ kind, match string }{
	{"path", "path: /login/in"},
	{"host", "host: admin.internal"},
	{"method", "method: DELETE"},
	{"header", "header.x-api-key: good"},
	{"cookie", "cookie.session: good"},
	{"cookie", "cookie.user_id: good"},
	{"query", "query.action: login"},
	{"query", "query.api_key: login"},
	{"key", "key: good"},
	{"body", "body./model: good"},
}

// readings are what a program understood, by the names of rules.
type readings map[string]*string

// blocked reports whether the program understood a value that the rules block.
func (r readings) blocked() bool {
	return slices.ContainsFunc([]string{"header.x-api-key", "cookie.session", "cookie.user_id", "key", "body./model"}, func(name string) bool { return r.value(name) == "good" }) ||
		r.value("query.action") == "login" || r.value("query.api_key") == "login" ||
		strings.TrimRight(r.value("path"), "/") == "/login/in" || r.host() == "admin.internal" || strings.EqualFold(r.value("method"), "DELETE")
}

// value is without what programs take away from the values of headers.
func (r readings) value(name string) string {
	switch v := r[name]; {
	case v == nil:
		return ""
	case strings.HasPrefix(name, "header."):
		return strings.TrimSpace(strings.Trim(*v, "\u0085\u00a0"))
	default:
		return *v
	}
}

// any reports whether the program understood anything of a kind.
func (r readings) any(kind string) bool {
	for name, v := range r {
		if v != nil && strings.HasPrefix(name, kind) {
			return true
		}
	}
	return false
}

func (r readings) host() string {
	host := strings.ToLower(r.value("host"))
	if name, port, ok := strings.Cut(host, ":"); ok && strings.Trim(port, "0123456789") == "" {
		host = name
	}
	return strings.TrimSuffix(host, ".")
}

func (r readings) String() string {
	b, _ := json.Marshal(r)
	return string(b)
}

// understood returns what a program behind said; nil where none has answered. A program
// says all that it read in its body, or which of the blocked values in its header.
func understood(t *testing.T, a wire.Answer) readings {
	t.Helper()
	body := a.Body
	switch echo := a.Header.Get("Echo-Bin"); {
	case echo != "": // of gRPC
		var err error
		if body, err = base64.RawStdEncoding.DecodeString(echo); err != nil {
			t.Fatal(err)
		}
	case a.Header.Get("Echo") == "":
		return nil
	}
	r := make(readings)
	if len(body) > 0 {
		if err := json.Unmarshal(body, &r); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return r
	}
	for name := range a.Header {
		if attribute, ok := strings.CutPrefix(strings.ToLower(name), "echo-"); ok {
			value := a.Header.Get(name)
			r[attribute] = &value
		}
	}
	return r
}

// An ask sends a request to a party, and returns what came back and what the program
// behind understood.
type ask func(t *testing.T, r wire.Request) (status string, understood readings)

// A judge compares what a party blocks with what the program behind understands.
type judge struct {
	blocks, shadows                         ask  // the second lets pass what it would block; nil where nothing is to be said of it
	direct                                  bool // stint itself answers
	passed, blocked, refused, unread, wrong int
}

func (j *judge) judge(t *testing.T, r wire.Request) {
	t.Helper()
	status, said := j.blocks(t, r)
	switch {
	case status == "403":
		j.blocked++
		if j.shadows == nil {
			return
		}
		if _, said = j.shadows(t, r); said == nil || said.blocked() {
			return
		}
		if noCookie, noQuery := !said.any("cookie."), !said.any("query."); noCookie && r.Value("cookie") != "" || noQuery && strings.Contains(r.Value(":path"), "?") {
			j.unread++ // Python reads no cookie at all where one of them is malformed, and Rack no parameter
			return
		}
		j.wrong++
		t.Errorf("%q is blocked, and the server understands %v", r, said)
	case said != nil:
		j.passed++
		if said.blocked() {
			j.wrong++
			t.Errorf("%q passes, and the server understands %v", r, said)
		}
	case status == "101" && j.direct:
		j.wrong++
		t.Errorf("%q: the connection was handed over", r)
	default:
		j.refused++
	}
}

// TestOracle sends the same requests to all parties, in each language that they speak: each
// byte, its encoding and the blanks of Unicode at each place, and what is made up. The
// seeds are fixed. STINT_SOAK=1 makes up 20,000 of each.
func TestOracle(t *testing.T) {
	need.Time(t)
	inputs := 300
	if os.Getenv("STINT_SOAK") != "" {
		inputs = 20_000
	}
	for _, p := range parties(t) {
		t.Run(p.name, func(t *testing.T) {
			behind := p.behind(t)
			blocks, shadows := p.front(t, behind, p.rules(false)), map[string]ask{}
			if p.exact {
				shadows = p.front(t, behind, p.rules(true))
			}
			for language, ask := range blocks {
				j := &judge{blocks: ask, shadows: shadows[language], direct: !p.trusted}
				p.enumerate(t, *j, language)
				for _, r := range attacks(p.varies) {
					j.judge(t, r)
				}
				random := rand.New(rand.NewPCG(34, uint64(len(p.name)+len(language))))
				for range inputs {
					if j.judge(t, madeUp(random, p.varies)); j.wrong > 10 {
						break
					}
				}
				t.Logf("%s: %d passed, %d blocked (of %d the server read nothing), %d refused", language, j.passed, j.blocked, j.unread, j.refused)
				if j.passed*20 < inputs || j.blocked*200 < inputs {
					t.Errorf("%s: too few pass or are blocked for this to say anything: %d, %d", language, j.passed, j.blocked)
				}
			}
		})
	}
}

// enumerate sends what is enumerated, each request in one of the languages, several at once.
// Of a party that is slow, or that reads as another does, a part is enough.
func (p *party) enumerate(t *testing.T, like judge, language string) {
	t.Helper()
	step := 2
	if p.exact || p.trusted || p.slow {
		step *= 12
	}
	var all []wire.Request
	i := len(p.name) % step
	for r := range enumerated(p.varies) {
		if i++; i%step == int(language[len(language)-1])%2 {
			all = append(all, r)
		}
	}
	t.Run(language, func(t *testing.T) {
		for some := range slices.Chunk(all, len(all)/4+1) {
			t.Run("enumerated", func(t *testing.T) {
				t.Parallel()
				j := like
				for _, r := range some {
					if j.judge(t, r); j.wrong > 10 {
						break
					}
				}
				t.Logf("%d passed, %d blocked, %d refused", j.passed, j.blocked, j.refused)
			})
		}
	})
}

// rules returns the rules of a party.
func (p *party) rules(shadow bool) string {
	trusted := ""
	if p.trusted {
		trusted = "127.0.0.1"
	}
	text := oracleRules
	for i, one := range oracleBlocks {
		if slices.Contains(p.varies, one.kind) {
			text += fmt.Sprintf("  - {name: r%d, match: {%s}, block: true, shadow: SHADOW}\n", i, one.match)
		}
	}
	return strings.NewReplacer("SHADOW", fmt.Sprint(shadow), "TRUSTED", trusted, "CASE", fmt.Sprint(p.anyCase)).Replace(text)
}
