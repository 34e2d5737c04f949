package main_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/service/observe/warn"
)

const webhookSecret = "0123456789abcdef-webhook"

// TestWebhook checks the warnings of a webhook: at 80 % and at the first denial,
// once each, signed.
func TestWebhook(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		var mu sync.Mutex
		var got []string
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if want := warn.Sign([]byte(webhookSecret), r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp"), body); r.Header.Get("Webhook-Signature") != want {
				t.Error("another signature")
			}
			one := decode[warn.Warning](t, string(body))
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf("%s %s %d of %d", one.Type, one.About.Key, *one.About.Used, one.About.Of))
		}))
		defer receiver.Close()
		dir := t.TempDir()
		p := start("-c", disk.Write(t, dir+"/stint.yaml", `rules: [{name: orders, key: [header.x-api-key], limits: ["10 per day"]}]`),
			"--webhook", receiver.URL, "--webhook-secret-file", disk.Write(t, dir+"/secret", webhookSecret+"\n"))
		p.requests("a", 13)
		p.requests("b", 3)
		want := []string{"stint.limit.near a 8 of 10", "stint.limit.denied a 10 of 10"}
		await.Until(t, fmt.Sprintf("%q", want), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(got, want)
		})
		_, text := p.call(http.MethodGet, p.admin+"/metrics", "", nil)
		for _, want := range []string{`stint_warnings_total{level="near",rule="orders"} 1`, `stint_warnings_total{level="denied",rule="orders"} 1`, `stint_webhook_total{result="sent"}`} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s", want)
			}
		}
	})
}

// TestUsage shows a customer what is used, by a token, and nothing without one.
func TestUsage(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		dir := t.TempDir()
		secret := disk.Write(t, dir+"/secret", "0123456789abcdef-secret")
		p := start("-c", disk.Write(t, dir+"/stint.yaml", operateRules), "--secret-file", secret)
		p.requests("partner-1", 3)
		make := func(args ...string) string {
			t.Helper()
			var out, errs bytes.Buffer
			if status := main.Run(t.Context(), append([]string{"token", "usage"}, args...), strings.NewReader(""), &out, &errs); status != 0 {
				t.Fatalf("exit %d %s", status, errs.String())
			}
			return strings.TrimSpace(out.String())
		}
		good := make("--secret-file", secret, "--attribute", "header.X-Api-Key=partner-1")
		addresses := []string{p.admin}
		if p.name == "serve" {
			addresses = append(addresses, p.front)
		}
		for _, address := range addresses {
			status, answer := p.call(http.MethodGet, address+"/v1/usage", "", map[string]string{"Authorization": "Bearer " + good})
			if status != http.StatusOK || !strings.Contains(answer, `"rules":[{"rule":"orders","denied":false,"limits":[{"limit":"5/d in UTC fixed_window","used":3,`) && !strings.Contains(answer, `"used":3,"remaining":2`) ||
				strings.Contains(answer, "shared") || strings.Contains(answer, "partner-1") {
				t.Errorf("%d %s", status, answer)
			}
			other := make("--secret-file", disk.Write(t, dir+"/other", "0123456789abcdef-other"), "--attribute", "header.x-api-key=partner-1")
			short := make("--secret-file", secret, "--attribute", "header.x-api-key=partner-1", "--for", "1ns")
			payload, mac, _ := strings.Cut(strings.TrimPrefix(good, "stint1."), ".")
			for _, token := range []string{"", other, short, good + "x", "stint1." + payload, "stint1.." + mac, "stint1.e30." + mac, strings.Repeat("A", 9000), "\x00"} {
				headers := map[string]string{}
				if token != "" && token != "\x00" {
					headers["Authorization"] = "Bearer " + token
				}
				if status, answer := p.call(http.MethodGet, address+"/v1/usage", "", headers); status != http.StatusUnauthorized {
					t.Errorf("%.40q: %d %s", token, status, answer)
				}
			}
		}
	})
}
