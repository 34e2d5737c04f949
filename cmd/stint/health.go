package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

type healthCmd struct {
	URL      string        `arg:"" optional:"" name:"url" default:"http://127.0.0.1:8080/readyz" help:"The URL to request (${default})."`
	Timeout  time.Duration `default:"3s" help:"How long the answer may take (${default})."`
	Insecure bool          `help:"Accept any certificate, such as one that does not name 127.0.0.1."`
}

// Help is what "stint health --help" says below the summary.
func (healthCmd) Help() string {
	return `For the health check of a container, in which there is no curl: the status is 0
if the answer is 200, else 1.

For example:

    stint health
    stint health http://127.0.0.1:9090/livez`
}

// Run asks once.
func (c *healthCmd) Run(e *env) error {
	ctx, cancel := context.WithTimeout(e.ctx, c.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil || r.URL.Host == "" {
		return usage("url", "%q is no http or https URL: write http://127.0.0.1:8080/readyz", c.URL)
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		// The probe asks its own server, and sends and receives no secret.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: c.Insecure}, //nolint:gosec // asked for by flag
	}}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<10)) // the status alone counts
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", c.URL, answer.Status)
	}
	_, err = fmt.Fprintln(e.out, "ok")
	return err
}
