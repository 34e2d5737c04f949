// Package rulesxds takes rules from a control plane that configures envoyproxy/ratelimit
// over xDS, such as Envoy Gateway. It asks for RateLimitConfig by the aggregated discovery
// service, state of the world, and converts the answers as stint import envoy-ratelimit
// --compatible does. Parts of a configuration that stint cannot use are refused with the
// reason and stay as they were before; the rest is used.
package rulesxds

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/stint-dev/stint/rulesource"
	"github.com/stint-dev/stint/service/rules"
)

// errNone is the error before the first configuration.
var errNone error = none{}

type none struct{}

func (none) Error() string { return "the control plane has sent no configuration yet" }

func (none) Is(target error) bool { return target == rulesource.ErrEmpty }

// A Source is the configuration of a control plane as rules. It implements
// [rulesource.Source]. Versions of xDS have no order, so the epoch of a configuration is
// the time when it came: the last one that the control plane sends counts.
type Source struct {
	at     address
	log    *slog.Logger
	done   context.Context
	closed context.CancelFunc
	asks   time.Duration // how long a connection may be quiet before it is checked by a ping
	// domains are the domains in force, to replace refused parts of the next configuration.
	domains map[string]*domain
	url     string // as given

	mu      sync.Mutex
	held    *rulesource.Snapshot // nil before the first configuration
	file    *rules.File          // the rules of held, or of the one that follows it
	version string               // the xDS version of held
	loaded  rulesource.Version   // the version that Load handed over last
	trouble error                // why held may not be the newest; nil if it is
	changed chan struct{}        // closed and replaced when one of these changes
}

var (
	_ rulesource.Source = (*Source)(nil)
	_ rules.Decoder     = (*Source)(nil)
)

// Open begins to ask the control plane of a URL, and goes on until Close:
//
//	xdss://HOST:PORT?node=NAME&cacert=FILE&cert=FILE&key=FILE&server_name=NAME
//
// xdss:// is over TLS: cacert has the CAs that sign the server's certificate, cert and
// key are the client's certificate, and server_name is the name in the server's
// certificate, if it is not HOST. Files are read for each connection. xds:// is without
// TLS, and needs a loopback address or insecure=true. node is the node of xDS, by default
// "default", and metadata.KEY=VALUE its metadata. With merge_domains=true, resources of one domain
// are taken together; without it, they are refused. With start_empty=true, Load does not
// wait for the first configuration. The log receives the differences from
// envoyproxy/ratelimit, refused configurations, and the state of the connection. kept is what the
// last snapshot of a process before had for it, or nil: refused parts stay as they were there.
func Open(text string, kept []byte, log *slog.Logger) (*Source, error) {
	at, err := parse(text)
	if err != nil {
		return nil, err
	}
	s := &Source{at: at, url: text, asks: asksAlive, log: cmp.Or(log, slog.New(slog.DiscardHandler)), changed: make(chan struct{})}
	s.recall(kept)
	s.done, s.closed = context.WithCancel(context.Background())
	go s.run()
	return s, nil
}

// String returns the URL without its parameters.
func (s *Source) String() string { return s.at.shown }

// Load implements [rulesource.Source]. It waits for the first configuration, except with
// start_empty.
func (s *Source) Load(ctx context.Context, held rulesource.Version, to rulesource.Receiver) (*rulesource.Snapshot, error) {
	for {
		now, changed, trouble := s.state()
		switch {
		case now != nil:
			s.handOver(now.Version)
			snapshot := *now
			if snapshot.Version == held {
				snapshot.Document = nil
			}
			return &snapshot, to.Begin(&snapshot, snapshot.Version != held)
		case s.at.startEmpty:
			return new(rulesource.Snapshot), errNone
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s has sent no configuration", s.at.shown), trouble)
		}
	}
}

// Wait implements [rulesource.Source]. Once the last usable configuration has been loaded, it
// also returns an error if the control plane is away, or its newest configuration is refused.
func (s *Source) Wait(ctx context.Context, held rulesource.Version) error {
	for {
		now, changed, trouble := s.state()
		switch {
		case now != nil && now.Version != held && s.fresh(now.Version):
			return nil
		case trouble != nil:
			return trouble
		case now != nil && now.Version != held:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close implements [rulesource.Source]. It does not wait: a configuration that is being
// converted is dropped.
func (s *Source) Close() error {
	s.closed()
	return nil
}

func (s *Source) state() (held *rulesource.Snapshot, changed <-chan struct{}, trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held, s.changed, s.trouble
}

func (s *Source) handOver(v rulesource.Version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = v
}

// File implements [rules.Decoder].
func (s *Source) File(hash string) *rules.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil || s.file.Hash() != hash {
		return nil
	}
	return s.file
}

// fresh reports whether a version has not been loaded.
func (s *Source) fresh(v rulesource.Version) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded != v
}

// set stores a new configuration, unless it is nil, and the trouble.
func (s *Source) set(held *rulesource.Snapshot, version string, trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held != nil {
		s.held, s.version = held, version
	}
	s.trouble = trouble
	close(s.changed)
	s.changed = make(chan struct{})
}

// inForce reports whether a response equals the configuration in force.
func (s *Source) inForce(r *discovery.DiscoveryResponse) bool {
	if s.held == nil || s.held.Refused != nil || r.GetTypeUrl() != typeURL || len(r.GetResources()) != len(s.domains) {
		return false
	}
	held := map[[sha256.Size]byte]bool{}
	for _, d := range s.domains {
		held[sha256.Sum256(d.sent.GetValue())] = true
	}
	for _, one := range r.GetResources() {
		sum := sha256.Sum256(one.GetValue())
		if one.GetTypeUrl() != typeURL || !held[sum] {
			return false
		}
		delete(held, sum)
	}
	return true
}

// take converts a response, stores the result, and returns the answer to the control plane:
// an ACK, or a NACK with the reason.
func (s *Source) take(r *discovery.DiscoveryResponse) *discovery.DiscoveryRequest {
	answer := &discovery.DiscoveryRequest{TypeUrl: typeURL, ResponseNonce: r.GetNonce()}
	if s.inForce(r) { // such as after a lost connection
		s.set(s.held, r.GetVersionInfo(), nil)
		answer.VersionInfo = r.GetVersionInfo()
		return answer
	}
	c, err := convert(s.done, r.GetTypeUrl(), r.GetResources(), s.domains, s.at.merge)
	if err != nil {
		err = fmt.Errorf("configuration %.100q is refused: %w", r.GetVersionInfo(), err)
		s.log.Error("xDS: the configuration before stays in force", "source", s.at.shown, "err", err)
		s.set(nil, "", err)
		answer.VersionInfo = s.version
		answer.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
		return answer
	}
	for i, note := range c.notes {
		if i == mostNotes {
			s.log.Warn("xDS: what differs from envoyproxy/ratelimit", "more", len(c.notes)-i)
			break
		}
		s.log.Warn("xDS: what differs from envoyproxy/ratelimit", "what", note.String())
	}
	refused := c.refusal()
	if refused != nil {
		refused = fmt.Errorf("configuration %.100q: %w", r.GetVersionInfo(), refused)
		answer.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: refused.Error()}
	}
	s.log.Info("xDS: configuration taken", "source", s.at.shown, "version", r.GetVersionInfo(), "resources", len(r.GetResources()))
	held := &rulesource.Snapshot{Name: documentName, Document: c.file.Document, Hash: c.file.Hash(), Refused: refused,
		Version: rulesource.Version{Identity: s.at.shown, Epoch: time.Now().UnixNano(), Revision: 1}}
	if s.held != nil { // the clock may have been set back
		held.Version.Epoch = max(held.Version.Epoch, s.held.Version.Epoch+1)
	}
	s.domains = c.domains
	held.Kept = s.kept()
	s.mu.Lock()
	s.file = c.file
	s.mu.Unlock()
	s.set(held, r.GetVersionInfo(), nil)
	answer.VersionInfo = r.GetVersionInfo()
	return answer
}
