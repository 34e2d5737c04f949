package proxy_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/service/claims"
	"github.com/stint-dev/stint/service/proxy"
	"github.com/stint-dev/stint/service/rules"
)

// An issuer signs tokens; its JWKS is in a file.
type issuer struct {
	key  ed25519.PrivateKey
	jwks string
}

func newIssuer(t *testing.T) *issuer {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	i := &issuer{key, filepath.Join(t.TempDir(), "jwks.json")}
	if err == nil {
		err = os.WriteFile(i.jwks, fmt.Appendf(nil, `{"keys":[{"kty":"OKP","crv":"Ed25519","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// bearer returns an Authorization header: a token with these claims, and those of the example in
// docs/RULES.md.
func (i *issuer) bearer(claims string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://id.example.com/","aud":"api",`+claims+`}`))
	return "Bearer " + text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(i.key, []byte(text)))
}

// withClaims puts a proxy in front of a server that answers 200, with rules in YAML.
func withClaims(t *testing.T, text string) *front {
	f, err := rules.Decode("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s := claims.New(claims.Options{})
	s.Use(f.Rules.File().JWT())
	behind := upstreamOf(t, func(http.ResponseWriter, *http.Request) {})
	return start(t, behind, 0, f, httplimit.ClientIP{}, proxy.Options{Claims: s})
}

// passing returns how many of n requests pass, and the status of the others.
func (f *front) passing(t *testing.T, n int, path string, header ...string) (passed, otherwise int) {
	for range n {
		if status := f.get(t, path, header...).StatusCode; status == http.StatusOK {
			passed++
		} else {
			otherwise = status
		}
	}
	return passed, otherwise
}

// TestClaimsExample runs the example of docs/RULES.md.
func TestClaimsExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/RULES.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\njwt:")
	text, _, ok := strings.Cut("jwt:"+text, "```")
	i := newIssuer(t)
	if text = strings.Replace(text, "https://id.example.com/jwks.json", i.jwks, 1); !ok || !strings.Contains(text, i.jwks) {
		t.Fatalf("no example with jwt: %s", text)
	}
	f := withClaims(t, text)
	for _, c := range []struct {
		token string
		want  int
	}{
		{i.bearer(`"sub":"ann"`), 2},
		{i.bearer(`"sub":"bob","plan":"pro"`), 20},
		{i.bearer(`"sub":"ann","jti":"2"`), 0},
		{i.bearer(`"sub":"eve","plan":"pro"`) + "A", 2}, // as if there were none
		{newIssuer(t).bearer(`"sub":"eve","plan":"pro"`), 0},
		{"Basic ZXZlOg==", 0},
	} {
		if passed, status := f.passing(t, 25, "/", "Authorization", c.token); passed != c.want || status != 429 {
			t.Errorf("%.60s: %d passed, want %d; then %d", c.token, passed, c.want, status)
		}
	}
	if _, status := f.passing(t, 1, "/", "Authorization", i.bearer(`"sub":"ann"`), "Authorization", i.bearer(`"sub":"bob"`)); status != 400 {
		t.Errorf("two fields: status %d", status)
	}
}
