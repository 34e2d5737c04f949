package main_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/redistest"
)

// TestInFlight holds a place by a reservation: operators see it; it outlives the process that
// gave it, which is killed; and any other ends it.
func TestInFlight(t *testing.T) {
	dir := t.TempDir()
	args := []string{
		"-c", disk.Write(t, dir+"/stint.yaml", "rules: [{name: pool, key: [], limits: 1 in flight}]\n"),
		"--secret-file", disk.Write(t, dir+"/secret", "0123456789abcdef\n"), "--store", redistest.Start(t).URL(),
	}
	first, second := operated(t, args...), operated(t, args...)
	if said := first.log(); !strings.Contains(said, "limits in flight") || !strings.Contains(said, "rules=pool") {
		t.Errorf("no warning of what /v1/check refuses: %s", said)
	}
	reserve := func(s *running) (status int, token string) {
		t.Helper()
		status, answer := s.ask("/v1/reserve", `{"attributes":{"path":"/"},"ttl":"1h"}`, "")
		return status, decode[struct{ Reservation string }](t, answer).Reservation
	}
	status, token := reserve(first)
	if status != http.StatusOK || token == "" || first.metric(`stint_in_flight{rule="pool"}`) != "1" {
		t.Fatalf("%d, token %q, %s in flight", status, token, first.metric(`stint_in_flight{rule="pool"}`))
	}
	if status, answer := first.ask("/v1/check", `{"attributes":{"path":"/"}}`, ""); status != http.StatusServiceUnavailable || !strings.Contains(answer, "/v1/reserve") {
		t.Errorf("a check: %d %s", status, answer)
	}
	if status, text := first.call(http.MethodGet, first.admin+"/v1/rule?rule=pool", "", nil); !strings.Contains(text, `"in_flight":1`) {
		t.Errorf("the rule: %d %s", status, text)
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
	await.Until(t, "what was settled is given back", func() bool {
		status, _ := reserve(second)
		return status == http.StatusOK
	})
}
