package rulesxds

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const (
	// maxMessage is the most bytes that a response may have.
	maxMessage = 32 << 20
	// leastPause and mostPause are between two streams: each is twice the one before,
	// with as much as half of it taken off at random. A stream that has lasted for
	// mostPause begins anew with the least.
	leastPause = 500 * time.Millisecond
	mostPause  = 30 * time.Second
	// asksAlive is how long nothing may come until the other side is asked whether it is
	// there, and aliveWithin how long that may take: a connection of which no end was seen,
	// as behind a relay that was switched off, ends then. Some servers, such as Envoy
	// Gateway's, take no such question within five minutes of another: they close the
	// connection with tooMany, and are asked after asksSeldom.
	asksAlive   = 30 * time.Second
	asksSeldom  = 5*time.Minute + 30*time.Second
	aliveWithin = 10 * time.Second
	tooMany     = "too_many_pings"
	// rest is between two responses of one stream.
	rest = 20 * time.Millisecond
)

// run asks until the source is closed.
func (s *Source) run() {
	pause := leastPause
	for s.done.Err() == nil {
		began := time.Now()
		err := s.stream()
		if s.done.Err() != nil {
			return
		}
		if strings.Contains(err.Error(), tooMany) && s.asks < asksSeldom {
			s.asks = asksSeldom
			continue
		}
		s.set(nil, "", fmt.Errorf("the control plane is away: %w", err))
		if time.Since(began) > mostPause {
			pause = leastPause
		}
		s.sleep(pause - rand.N(pause/2))
		pause = min(2*pause, mostPause)
	}
}

// stream asks on one stream, until it ends.
func (s *Source) stream() error {
	creds, err := s.at.credentials()
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("dns:///"+s.at.host, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: s.asks, Timeout: aliveWithin}))
	if err != nil {
		return err
	}
	defer conn.Close() // the stream has ended
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(s.done)
	if err != nil {
		return reason(err)
	}
	ask := &discovery.DiscoveryRequest{Node: s.at.node, TypeUrl: typeURL} // of no version, or a server has no reason to answer
	for {
		if err := stream.Send(ask); err != nil && !errors.Is(err, io.EOF) { // Recv says why a stream has ended
			return reason(err)
		}
		response, err := stream.Recv()
		if err != nil {
			return reason(err)
		}
		if ask = s.take(response); ask.GetErrorDetail() != nil {
			s.sleep(leastPause) // one that sends again at once what was refused
		}
		s.sleep(rest)
	}
}

// reason returns what a call failed by, in the words of the other side.
func reason(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it has ended the stream")
	case status.Convert(err).Message() != "":
		return errors.New(status.Convert(err).Message())
	}
	return err
}

// sleep returns after d, or when the source is closed.
func (s *Source) sleep(d time.Duration) {
	select {
	case <-s.done.Done():
	case <-time.After(d):
	}
}
