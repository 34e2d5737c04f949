// Package rulesxds takes rules from a control plane that configures envoyproxy/ratelimit
// over xDS, such as Envoy Gateway: it asks for RateLimitConfig by the aggregated
// discovery service, state of the world, and converts what it gets as stint import
// envoy-ratelimit --compatible does. What of a configuration cannot be held is refused with
// the reason: it is as it was before, and the rest is taken.
package rulesxds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/stint-dev/stint/rulesource"
	"github.com/stint-dev/stint/service/importers/envoyrules"
)

// errNone is before the first configuration.
var errNone error = none{}

type none struct{}

func (none) Error() string { return "the control plane has sent no configuration yet" }

func (none) Is(target error) bool { return target == rulesource.ErrEmpty }

// A Source is the configuration of a control plane as rules. It implements
// [rulesource.Source]. Versions of xDS have no order, so the time at which a
// configuration came is its epoch: what the control plane sends last is right.
type Source struct {
	at     address
	log    *slog.Logger
	done   context.Context
	closed context.CancelFunc
	asks   time.Duration // how long a connection is quiet until the other side is asked whether it is there
	// domains are those in force, for what comes next and cannot be held.
	domains map[string]*envoyrules.Domain

	mu      sync.Mutex
	held    *rulesource.Snapshot // nil before the first
	version string               // of xDS, of held
	loaded  rulesource.Version   // that Load handed over last
	trouble error                // why held may not be the newest; nil if it is
	changed chan struct{}        // closed and made anew when one of these changes
}

var _ rulesource.Source = (*Source)(nil)

// Open begins to ask the control plane of a URL, and goes on until Close:
//
//	xdss://HOST:PORT?node=NAME&cacert=FILE&cert=FILE&key=FILE&server_name=NAME
//
// xdss:// is over TLS: cacert has the CAs that sign the server's certificate, cert and
// key are what this side shows, and server_name is the name in the server's certificate,
// if it is not HOST. Files are read for each connection. xds:// is without TLS, and takes
// loopback addresses alone, unless insecure=true says that it is meant. node is the node
// of xDS, "default" unless given, and metadata.KEY=VALUE its metadata. With
// start_empty=true, Load does not wait for the first configuration. The log receives what
// differs from envoyproxy/ratelimit, configurations that are refused, and the state of
// the connection.
func Open(text string, log *slog.Logger) (*Source, error) {
	at, err := parse(text)
	if err != nil {
		return nil, err
	}
	s := &Source{at: at, asks: asksAlive, log: cmp.Or(log, slog.New(slog.DiscardHandler)), changed: make(chan struct{})}
	s.done, s.closed = context.WithCancel(context.Background())
	go s.run()
	return s, nil
}

// String returns the URL without its parameters.
func (s *Source) String() string { return s.at.shown }

// Load implements [rulesource.Source]. It waits for the first configuration, but not with
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

// Wait implements [rulesource.Source]. The error also says that the control plane is
// away, or has sent what cannot be kept, once what it sent before has been loaded.
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

// Close implements [rulesource.Source]. It waits for nothing: what is being converted is
// dropped.
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

// fresh reports whether a version has not been loaded.
func (s *Source) fresh(v rulesource.Version) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded != v
}

// set holds what the control plane sent, nil for what was before, or says what the
// trouble is.
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

// take takes a response, as far as it can be held, and returns the answer to it: an ACK, or
// a NACK with the reason.
func (s *Source) take(r *discovery.DiscoveryResponse) *discovery.DiscoveryRequest {
	answer := &discovery.DiscoveryRequest{TypeUrl: typeURL, ResponseNonce: r.GetNonce()}
	c, err := convert(s.done, r.GetTypeUrl(), r.GetResources(), s.domains)
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
		s.log.Error("xDS: a part of the configuration is refused", "source", s.at.shown, "err", refused)
		answer.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: refused.Error()}
	}
	s.log.Info("xDS: configuration taken", "source", s.at.shown, "version", r.GetVersionInfo(), "resources", len(r.GetResources()))
	held := &rulesource.Snapshot{Name: documentName, Document: c.document, Hash: rulesource.HashOf(c.document),
		Version: rulesource.Version{Identity: s.at.shown, Epoch: time.Now().UnixNano(), Revision: 1}}
	switch {
	case s.held == nil:
	case s.held.Hash == held.Hash:
		held = s.held // sent again, as after a connection was lost
	default: // the clock may have been set back
		held.Version.Epoch = max(held.Version.Epoch, s.held.Version.Epoch+1)
	}
	s.domains = c.domains
	s.set(held, r.GetVersionInfo(), refused)
	answer.VersionInfo = r.GetVersionInfo()
	return answer
}
