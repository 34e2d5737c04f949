package proxy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/freeport"

	"github.com/stint-dev/stint/cmd/internal/service/proxy"
)

// The oracle over HTTP/2: what goes over the wire as frames, and through HTTP/1.1 to
// servers that other programs run on. What they read as the value of the rules, the
// rules have blocked or refused.

const wireRules = `
rules:
  - {name: key, match: {header.x-api-key: good}, block: true}
  - {name: cookie, match: {cookie.session: good}, block: true}
  - {name: user, match: {cookie.user_id: good}, block: true}
  - {name: query, match: {query.action: login}, block: true}
  - {name: name, match: {query.api_key: login}, block: true}
  - {name: host, match: {host: admin.internal}, block: true}
  - {name: path, match: {path: /login}, block: true}
`

// wireAttacks each have passed the rules, or would pass those of a proxy that reads
// HTTP/2 as HTTP/1.1.
var wireAttacks = [][]field{
	asked("/x", field{"x-api-key", "good "}), asked("/x", field{"x-api-key", "\tgood"}), asked("/x", field{"x-api-key", "good\xa0"}),
	asked("/x", field{"x-api-key", "junk"}, field{"x-api-key", "good"}), asked("/x", field{"X-Api-Key", "good"}), asked("/x", field{"x_api_key", "good"}),
	asked("/x?action=login "), asked("/x?action=login   "), asked("/x?action=login HTTP/1.0"), asked("/x?action=login\t"), asked("/login "),
	asked("/x?[action]=login"), asked("/x?[]action=login"), asked("/x?[action=login"), asked("/x?]action=login"), asked("/x?action]=login"), asked("/x?action=x&[action=login"),
	asked("/x?api.key=login"), asked("/x?api%20key=login"), asked("/x?api+key=login"), asked("/x?api[key=login"), asked("/x??action=login"),
	asked("/x", field{"cookie", "user.id=good"}), asked("/x", field{"cookie", "user id=good"}), asked("/x", field{"cookie", "user[id=good"}),
	asked("/x", field{"cookie", "session=junk"}, field{"cookie", "session=good"}), asked("/x", field{"cookie", "session=good "}), asked("/x", field{"cookie", "a=b"}, field{"cookie", "session=good"}),
	asked("/x", field{":path", "/login"}), asked("/x", field{"host", "admin.internal"}), asked("/x", field{":authority", "admin.internal"}),
	asked("/x", field{"connection", "x-api-key"}, field{"x-api-key", "good"}), asked("/x", field{"transfer-encoding", "chunked"}),
}

// madeOfFrames returns the fields of a request that varies one part.
func madeOfFrames(r *rand.Rand) []field {
	some := func(most int, pieces ...string) string {
		var b strings.Builder
		for range 1 + r.IntN(most) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		return b.String()
	}
	switch r.IntN(5) {
	case 0:
		fields := asked("/x")
		for range 1 + r.IntN(2) {
			fields = append(fields, field{some(1, "x-api-key", "x-api-key", "x-api-key", "x_api_key", "x.api-key", "X-Api-Key"), some(3, "good", "good", " ", "\t", "junk", "\xa0", "\x85", "é", ",", "\"")})
		}
		return fields
	case 1:
		return asked("/x?" + some(6, "action", "action", "api_key", "api.key", "api", "key", "=", "=", "login", "login", "&", "[", "]", " ", "\t", "+", "%20", ".", "%5B", "%2e", "?", "\xa0", "%00", "Action"))
	case 2:
		fields := asked("/x")
		for range 1 + r.IntN(2) {
			fields = append(fields, field{"cookie", some(6, "session", "session", "user_id", "user.id", "user", "id", "=", "=", "good", "good", ";", "; ", " ", "[", ".", ",", "\"", "%65", "junk")})
		}
		return fields
	case 3:
		return asked("/" + some(4, "login", "login", "l", "ogin", " ", "\t", "/", ".", "..", "%6c", "%2f", "?", "#", "\xa0", ";"))
	}
	fields := asked("/x")
	fields[2].value = some(3, "admin.internal", "admin.internal", "ADMIN", ".", ":80", " ", ",", "@", "h", "\xa0")
	return fields
}

// TestWireOracle sends HTTP/2 frames to a proxy in front of each server that is here.
// STINT_SOAK=1 sends 20,000 to each. The seed is fixed.
func TestWireOracle(t *testing.T) {
	inputs := 300
	if os.Getenv("STINT_SOAK") != "" {
		inputs = 20_000
	}
	for _, server := range []struct {
		name  string
		start func(t *testing.T) (address string, missing string)
	}{{"net/http", goEcho}, {"node", nodeEcho}, {"qs", qsEcho}, {"wsgiref", wsgiEcho}, {"hypercorn", asgiEcho}, {"php", phpEcho}, {"rack", rackEcho}} {
		t.Run(server.name, func(t *testing.T) {
			address, missing := server.start(t)
			if missing != "" {
				t.Skip(missing)
			}
			f := start(t, mustURL(t, "http://"+address), 0, yaml(t, wireRules), httplimit.ClientIP{}, proxy.Options{})
			random, passed, blocked := rand.New(rand.NewPCG(34, 1)), 0, 0
			judge := func(fields []field) {
				answer := frames(t, f.address, fields)
				switch {
				case answer.status == "403":
					blocked++
				case answer.header["echo"] != "":
					passed++
					var u understanding
					if err := json.Unmarshal(answer.body, &u); err != nil {
						t.Fatalf("%s: %v", answer.body, err)
					}
					u.trim()
					if u.is() || u.Query != nil && *u.Query == "login" {
						t.Errorf("%q passes, and the server understands %s", fields, u.String())
					}
				}
			}
			for _, fields := range wireAttacks {
				judge(fields)
			}
			for range inputs {
				if judge(madeOfFrames(random)); t.Failed() {
					break
				}
			}
			if passed*20 < inputs || blocked*200 < inputs {
				t.Errorf("too few pass or are blocked for this to say anything: %d, %d", passed, blocked)
			}
		})
	}
}

// trim takes away what programs take away from the values that they are given.
func (u *understanding) trim() {
	for _, v := range []*string{u.Key, u.Cookie, u.Query} {
		if v != nil {
			*v = strings.TrimSpace(strings.TrimRight(*v, "\u0085\u00a0"))
		}
	}
}

func qsEcho(t *testing.T) (address, missing string) {
	modules, err := filepath.Abs("../../../../bin/node/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "qs")); err != nil {
		return "", "no qs of npm"
	}
	if _, err := exec.LookPath("node"); err != nil {
		return "", "no node"
	}
	t.Setenv("NODE_PATH", modules)
	return reported(t, "node", "qs.js"), ""
}

func phpEcho(t *testing.T) (address, missing string) {
	if _, err := exec.LookPath("php"); err != nil {
		return "", "no php"
	}
	address = freeport.Addr(t)
	program(t, "php", "-q", "-S", address, "echo.php")
	reached(t, address)
	return address, ""
}

func rackEcho(t *testing.T) (address, missing string) {
	if _, err := exec.LookPath("puma"); err != nil {
		return "", "no puma"
	}
	address = freeport.Addr(t)
	program(t, "puma", "-q", "-b", fmt.Sprint("tcp://", address), "rack.ru")
	reached(t, address)
	return address, ""
}
