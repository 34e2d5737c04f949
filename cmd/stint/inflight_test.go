package main_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/redistest"
)

// TestInFlight holds a place by a reservation: operators see it; it outlives the process that
// gave it, which is killed; and any other ends it.
func TestInFlight(t *testing.T) {
	dir := t.TempDir()
	args := []string{
		"-c", writeFile(t, dir+"/stint.yaml", "rules: [{name: pool, key: [], limits: 1 in flight}]\n"), "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--secret-file", writeFile(t, dir+"/secret", "0123456789abcdef\n"), "--store", redistest.Start(t).URL(),
	}
	first, second := startServe(t, args...), startServe(t, args...)
	if said := first.log(); !strings.Contains(said, "limits in flight") || !strings.Contains(said, "rules=pool") {
		t.Errorf("no warning of what /v1/check refuses: %s", said)
	}
	reserve := func(s *serving) (status int, token string) {
		t.Helper()
		status, answer := s.ask("/v1/reserve", `{"attributes":{"path":"/"},"ttl":"1h"}`, "")
		var said struct{ Reservation string }
		if err := json.Unmarshal([]byte(answer), &said); err != nil {
			t.Fatalf("%d %s: %v", status, answer, err)
		}
		return status, said.Reservation
	}
	status, token := reserve(first)
	if status != http.StatusOK || token == "" || first.metric(`stint_in_flight{rule="pool"}`) != "1" {
		t.Fatalf("%d, token %q, %s in flight", status, token, first.metric(`stint_in_flight{rule="pool"}`))
	}
	if status, answer := first.ask("/v1/check", `{"attributes":{"path":"/"}}`, ""); status != http.StatusServiceUnavailable || !strings.Contains(answer, "/v1/reserve") {
		t.Errorf("a check: %d %s", status, answer)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, first.admin+"/v1/rule?rule=pool", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := first.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(text), `"in_flight":1`) {
		t.Errorf("the rule: %s, %v", text, err)
	}
	if err := first.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if status, _ := reserve(second); status != http.StatusTooManyRequests {
		t.Errorf("with its process killed, a second: %d", status)
	}
	for range 2 {
		if status, answer := second.ask("/v1/settle", `{"reservation":"`+token+`","cost":0}`, ""); status != http.StatusOK {
			t.Errorf("settled: %d %s", status, answer)
		}
	}
	for status, _ := reserve(second); status != http.StatusOK; status, _ = reserve(second) {
		if ctx.Err() != nil {
			t.Fatal("what was settled is not given back")
		}
		time.Sleep(time.Millisecond)
	}
}
