package rulesfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// TestJWT reads what a file says of tokens. Their claims need not be declared.
func TestJWT(t *testing.T) {
	for text, want := range map[string]string{
		`{"jwks": "https://id.example.com/jwks.json"}`:                                             "{authorization https://id.example.com/jwks.json  [] [RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA]}",
		`{"jwks": "/etc/stint/jwks.json", "header": "X-Token", "algorithms": "HS256"}`:             "{x-token /etc/stint/jwks.json  [] [HS256]}",
		`{"jwks": "http://[::1]:8200/j", "issuer": "a", "audience": "b", "algorithms": ["EdDSA"]}`: "{authorization http://[::1]:8200/j a [b] [EdDSA]}",
		`{"jwks": "http://localhost/j", "audience": ["b", "c"], "algorithms": ["RS256", "ES256"]}`: "{authorization http://localhost/j  [b c] [RS256 ES256]}",
	} {
		f, err := rulesfile.Parse([]byte(`{"jwt": ` + text + `, "rules": [{"name": "a", "match": {"jwt.role": "x"}, "key": ["ip"], "limits": "1/s"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(*f.JWT()); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		for by, refused := range map[request.Interfaces]bool{request.Proxy: false, request.Auth: false, request.Middleware: true, request.Program: true} {
			if errs := f.Refused(by); (len(errs) > 0) != refused {
				t.Errorf("%v: %v", by, errs)
			}
		}
		if len(f.Warnings()) > 0 || f.Unknown("jwt.sub") != nil {
			t.Errorf("%v, %v", f.Warnings(), f.Unknown("jwt.sub"))
		}
	}
}

// TestClaimKeys warns of keys by a claim, which clients without a token that verifies do not
// have.
func TestClaimKeys(t *testing.T) {
	const skips, shares = "it holds no client that sends no token", "share one key, and no other rule holds them by address"
	for _, c := range []struct{ jwt, rules, want string }{
		{"jwt", `"key": ["jwt.sub"], "limits": "1/s"`, shares},
		{"jwt", `"key": ["ip", "jwt.sub"], "limits": "1/s"`, ""},
		{"jwt", `"key": ["jwt.sub"], "limits": "1/s", "on_missing": "deny"`, ""},
		{"jwt", `"key": ["jwt.sub"], "limits": "1/s", "on_missing": "skip"`, skips},
		{"jwt", `"key": ["jwt.sub"], "limits": "1/s", "on_missing": "skip"}, {"name": "b", "key": ["ip"], "limits": "9/s"`, skips},
		{"jwt", `"key": ["jwt.sub"], "limits": "1/s"}, {"name": "b", "key": ["ip"], "limits": "9/s"`, ""},
		{"jwt", `"match": {"path": "/a"}, "key": ["jwt.sub"], "limits": "1/s"}, {"name": "b", "match": {"path": "/b"}, "key": ["ip"], "limits": "9/s"`, shares},
		{"jwt", `"key": ["jwt.sub"], "unlimited": true`, ""},
		{"jwt", `"key": ["ip"], "tiers": {"by": "jwt.plan", "default": "a", "plans": {"a": "1/s"}}`, ""},
		{"jwt", `"key": ["header.x"], "limits": "1/s"}, {"name": "b", "key": ["jwt.sub"], "limits": "9/s", "on_missing": "skip"`, "a client can have as many keys"},
		{"other", `"key": ["jwt.sub"], "limits": "1/s"`, ""}, // the caller has verified the token
	} {
		f, err := rulesfile.Decode(tree(t, `{"attributes": "jwt.sub", "`+c.jwt+`": {"jwks": "https://id.example.com/"}, "rules": [{"name": "a", `+c.rules+`}]}`), "other")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, w := range f.Warnings() {
			got += w.Reason + "\n"
		}
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", c.rules, got, c.want)
		}
	}
}

func tree(t *testing.T, text string) *rulesfile.Node {
	n, err := rulesfile.ReadJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
