// Package ruleshttp reads rules from an https URL, and asks by ETag whether they have changed. It
// has no overrides other than those in the rules.
package ruleshttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint/internal/ports"
	"github.com/stint-dev/stint/rulesource"
)

const (
	// maxDocument is the greatest size of the rules, in bytes.
	maxDocument = 32 << 20
	// askWithin is how long the server may take for a whole answer.
	askWithin = 10 * time.Second
	// poll is the longest time between two requests; each interval is shortened by up to a fifth at
	// random.
	poll = 5 * time.Second
)

// A Source is rules at a URL. It implements [rulesource.Source]. A URL has no versions, so the time
// at which a document was first seen is its epoch. That makes whatever the server says newest, even
// if it goes back to an earlier document.
type Source struct {
	url       string
	shown     string
	tokenFile string
	http      *http.Client
	closed    context.CancelFunc
	done      context.Context

	mu   sync.Mutex
	etag string
	held *rulesource.Snapshot // nil before the first answer
}

var _ rulesource.Source = (*Source)(nil)

// Open returns the source of a URL. It does not connect. Without TLS it accepts only loopback
// addresses. The file, unless it is "", holds a token that is sent to the server; it is read before
// each request.
func Open(text, tokenFile string) (*Source, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("want a URL such as https://rules.example.com/stint.yaml")
	}
	if u.User != nil {
		return nil, errors.New("a URL with a user is shown in many places: put a token into a file")
	}
	if err := errors.Join(ports.Check(u), secure(u)); err != nil {
		return nil, err
	}
	s := &Source{url: text, tokenFile: tokenFile, shown: (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()}
	s.done, s.closed = context.WithCancel(context.Background())
	s.http = &http.Client{Timeout: askWithin, Transport: http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= 5 || r.URL.Host != via[0].URL.Host { // the token is for one host
				return http.ErrUseLastResponse
			}
			return secure(r.URL)
		}}
	return s, nil
}

// secure refuses a URL without TLS that is not of this machine.
func secure(u *url.URL) error {
	addr, err := netip.ParseAddr(u.Hostname())
	if u.Scheme == "https" || u.Hostname() == "localhost" || err == nil && addr.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%s: whoever is in between could change the rules: use https", u.Host)
}

// String returns the URL without its query, which may hold a secret.
func (s *Source) String() string { return s.shown }

// Load implements [rulesource.Source].
func (s *Source) Load(ctx context.Context, held rulesource.Version, to rulesource.Receiver) (*rulesource.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		if err := s.poll(ctx); err != nil {
			return nil, err
		}
	}
	snapshot := *s.held
	if snapshot.Version == held {
		snapshot.Document = nil
	}
	return &snapshot, to.Begin(&snapshot, snapshot.Version != held)
}

// Wait implements [rulesource.Source].
func (s *Source) Wait(ctx context.Context, held rulesource.Version) error {
	for {
		s.mu.Lock()
		err := s.poll(ctx)
		changed := err == nil && s.held.Version != held
		s.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil || changed:
			return err
		}
		select {
		case <-time.After(poll - rand.N(poll/5)):
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done.Done():
			return errors.New("closed")
		}
	}
}

// Close implements [rulesource.Source].
func (s *Source) Close() error {
	s.closed()
	s.http.CloseIdleConnections()
	return nil
}

// poll asks the server whether the document differs from the one held, and takes it if so. The
// caller holds s.mu.
func (s *Source) poll(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return err
	}
	if s.etag != "" && s.held != nil {
		r.Header.Set("If-None-Match", s.etag)
	}
	if s.tokenFile != "" {
		token, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return fmt.Errorf("the token's file: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := s.http.Do(r)
	if err != nil {
		if whole, ok := errors.AsType[*url.Error](err); ok {
			err = whole.Err // the URL may hold a secret
		}
		return fmt.Errorf("%s: %w", s.shown, err)
	}
	defer resp.Body.Close() // the body has been read, or is not wanted
	switch {
	case resp.StatusCode == http.StatusNotModified && s.held != nil:
		return nil
	case slices.Contains([]int{301, 302, 303, 307, 308}, resp.StatusCode):
		return fmt.Errorf("%s: answered %s, a redirect to another host or one of many, which is not followed: name the URL that has the rules", s.shown, resp.Status)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: answered %s", s.shown, resp.Status)
	}
	document, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", s.shown, err)
	case len(document) > maxDocument:
		return fmt.Errorf("%s: more than 32 MiB", s.shown)
	}
	s.take(document, resp.Header.Get("ETag"))
	return nil
}

// take holds a document if it differs from the one held.
func (s *Source) take(document []byte, etag string) {
	s.etag = etag
	hash := rulesource.HashOf(document)
	if s.held != nil && s.held.Hash == hash {
		return
	}
	name := path.Base(s.shown)
	if path.Ext(name) == "" {
		name = "stint.yaml"
	}
	version := rulesource.Version{Identity: s.shown, Epoch: time.Now().UnixMicro(), Revision: 1}
	s.held = &rulesource.Snapshot{Version: version, Name: name, Document: document, Hash: hash}
}
