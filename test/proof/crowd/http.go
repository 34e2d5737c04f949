package crowd

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// HTTP asks over HTTP: 200 lets a request pass, and 429 does not.
func HTTP(t testing.TB, transport *http.Transport, request func(key string) (*http.Request, error)) Take {
	t.Cleanup(transport.CloseIdleConnections)
	c := &http.Client{Transport: transport, Timeout: time.Minute}
	return func(key string) (bool, error) {
		r, err := request(key)
		if err != nil {
			return false, err
		}
		answer, err := c.Do(r)
		if err != nil {
			return false, err
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests {
			return false, fmt.Errorf("status %d: %s, %w", answer.StatusCode, body, err)
		}
		return answer.StatusCode == http.StatusOK, nil
	}
}
