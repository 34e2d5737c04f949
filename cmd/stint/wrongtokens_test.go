package main_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// TestWrongTokens shows good, missing and wrong tokens at each interface: the metric
// has the wrong ones, the log who showed them, a line or two for however many.
func TestWrongTokens(t *testing.T) {
	dir := t.TempDir()
	secret := writeFile(t, dir+"/secret", strings.Repeat("s", 32))
	s := startServe(t, "-c", writeFile(t, dir+"/stint.yaml", interfaceRules), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--secret-file", secret, "--token-file", writeFile(t, dir+"/tokens", serveToken), "--operator-token-file", writeFile(t, dir+"/operators", operatorToken))
	envoy := grpcClient(t, s.at("interface=grpc"), insecure.NewCredentials())
	redisAt := s.at("interface=resp")
	ask := func(method, url, body, token string) (status int, answer string) {
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	web := func(method, url string) func(token string) {
		return func(token string) {
			if status, answer := ask(method, url, "{}", token); token == wrongToken && status != http.StatusUnauthorized {
				t.Errorf("%s: %d %s", url, status, answer)
			}
		}
	}
	page := func(token string) {
		if status, answer := ask("POST", s.admin+"/ui/session", `{"token":"`+token+`"}`, ""); token == wrongToken && status != http.StatusUnauthorized {
			t.Errorf("the page: %d %s", status, answer)
		}
	}
	const many = 200
	want := map[string]int{}
	for _, c := range []struct {
		at    string
		times int
		good  string // "" for none of the files: it wants one that the secret has signed
		show  func(token string)
	}{
		{"http", 1, operatorToken, web("POST", "http://"+s.address+"/v1/check")},
		{"http", 1, operatorToken, web("POST", "http://"+s.address+"/v1/reset")},
		{"http", 1, operatorToken, web("POST", "http://"+s.address+"/json")},
		{"http", 1, operatorToken, web("GET", "http://"+s.address+"/metrics")},
		{"http", 1, "", web("GET", "http://"+s.address+"/v1/usage")},
		{"admin", 1, operatorToken, web("GET", s.admin+"/v1/rules")},
		{"admin", 1, "", web("GET", s.admin+"/v1/usage")},
		{"admin", 1, operatorToken, web("POST", s.admin+"/v1/rehearse")},
		{"admin", 1, operatorToken, page},
		{"grpc", many, operatorToken, func(token string) {
			ctx := t.Context()
			if token != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
			}
			_, _ = envoy.ShouldRateLimit(ctx, envoyRequest("rls", question{map[string]string{"user": "ann"}, 1})) // the metric says what came of it
		}},
		{"resp", many, operatorToken, func(token string) {
			client := redis.NewClient(&redis.Options{Addr: redisAt, Protocol: 2, MaxRetries: -1, PoolSize: 1})
			defer client.Close()
			if token == "" {
				_ = client.Ping(t.Context()).Err()
				return
			}
			err := client.Do(t.Context(), "AUTH", token).Err()
			if token == wrongToken && fmt.Sprint(err) != "WRONGPASS invalid token" {
				t.Error(err)
			}
		}},
	} {
		c.show("")
		if c.good != "" {
			c.show(c.good)
		}
		for range c.times {
			c.show(wrongToken)
		}
		want[c.at] += c.times
	}
	_, metrics := ask("GET", "http://"+s.address+"/metrics", "", serveToken)
	for name, n := range want {
		if line := fmt.Sprintf("stint_wrong_tokens_total{interface=%q} %d\n", name, n); !strings.Contains(metrics, line) {
			t.Errorf("no %s in\n%s", line, regexp.MustCompile(`(?m)^stint_wrong.*$`).FindAllString(metrics, -1))
		}
	}
	s.stop("")
	for name, n := range want {
		lines := regexp.MustCompile(`(?m)^.*msg="wrong token.*interface=`+name+` address=127\.0\.0\.1\b.*$`).FindAllString(s.log(), -1)
		if len(lines) < 2 || len(lines) > 4 || !strings.Contains(lines[0], "level=WARN") { // two, or four across the end of a minute
			t.Errorf("%s: %d wrong tokens, and the log says %q", name, n, lines)
		}
	}
	if strings.Contains(s.log(), wrongToken) {
		t.Error("the log has a token")
	}
}

const wrongToken = "wrong-0123456789abcdef"
