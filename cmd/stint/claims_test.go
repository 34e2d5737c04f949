package main_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/await"
)

// TestClaims blocks a claim in the proxy and at /auth: by keys that are fetched, by the
// last ones after a restart, and no more once the rules want another issuer.
func TestClaims(t *testing.T) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding
	var down atomic.Bool
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","x":%q}]}`, b64.EncodeToString(public))
	}))
	defer issuer.Close()
	text := b64.EncodeToString([]byte(`{"alg":"EdDSA"}`)) + "." + b64.EncodeToString([]byte(`{"iss":"us","sub":"mallory"}`))
	token := "Bearer " + text + "." + b64.EncodeToString(ed25519.Sign(key, []byte(text)))
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		down.Store(false)
		file := t.TempDir() + "/stint.yaml"
		rules := `
trusted_proxies: [127.0.0.1]
jwt: {jwks: "` + issuer.URL + `", issuer: us}
rules:
  - {name: banned, match: {jwt.sub: mallory}, block: true}
`
		writeFile(t, file, rules)
		p := start("-c", file)
		ask := func() int {
			path, headers := "/", map[string]string{"Authorization": token}
			if p.name == "serve" {
				path = "/auth"
				headers["X-Original-Method"], headers["X-Original-Uri"], headers["X-Original-Host"] = "GET", "/", "a"
			}
			status, _ := p.call(http.MethodGet, p.front+path, "", headers)
			return status
		}
		await.Until(t, "the keys are there", func() bool { return ask() == http.StatusForbidden })
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		down.Store(true)
		p = start("-c", file)
		if status := ask(); status != http.StatusForbidden {
			t.Errorf("after a restart without the issuer: %d", status)
		}
		if _, metrics := p.call(http.MethodGet, p.admin+"/metrics", "", nil); !strings.Contains(metrics, `stint_jwt_tokens_total{outcome="valid"}`) {
			t.Errorf("no metric of tokens: %s", metrics)
		}
		writeFile(t, file, strings.Replace(rules, "issuer: us", "issuer: them", 1))
		await.Until(t, "the rules want another issuer", func() bool { return ask() == http.StatusOK })
	})
}
