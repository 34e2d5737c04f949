package rehearse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
)

// A Client asks a [Handler].
type Client struct {
	base, token string
	http        *http.Client
}

// Dial returns the client of a server, by its admin address and a file with a
// token, "" for none. It does not connect. A token goes over http to this
// machine alone.
func Dial(server, tokenFile string) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("want an address such as https://10.0.0.1:9090")
	}
	c := &Client{base: strings.TrimSuffix(u.String(), "/")}
	if tokenFile != "" {
		addr, err := netip.ParseAddr(u.Hostname())
		if u.Scheme == "http" && u.Hostname() != "localhost" && (err != nil || !addr.IsLoopback()) {
			return nil, fmt.Errorf("%s: a token would go over the network in clear: use https", u.Host)
		}
		token, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, fmt.Errorf("the token's file: %w", err)
		}
		c.token = strings.TrimSpace(string(token))
	}
	c.http = &http.Client{Timeout: within + 30*time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// maxReport bounds an answer, in bytes.
const maxReport = 64 << 20

// Rehearse asks for a rehearsal. The error says what the server does.
func (c *Client) Rehearse(ctx context.Context, ask Ask) (*Report, error) {
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+Path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op
		}
		return nil, fmt.Errorf("%s: %w", c.base, err)
	}
	defer resp.Body.Close() // it was only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReport))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.base, err)
	}
	if resp.StatusCode != http.StatusOK {
		var problem struct{ Detail, Field string }
		if json.Unmarshal(text, &problem) != nil || problem.Detail == "" {
			problem.Detail = "answered " + resp.Status
		}
		return nil, fmt.Errorf("%s: %s", c.base, problem.Detail)
	}
	report := new(Report)
	if err := json.Unmarshal(text, report); err != nil {
		return nil, fmt.Errorf("%s: an answer that cannot be read: %w", c.base, err)
	}
	return report, nil
}
