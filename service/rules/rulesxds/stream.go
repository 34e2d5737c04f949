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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const (
	// maxMessage is the most bytes that a response may have.
	maxMessage = 32 << 20
	// leastPause and mostPause bound the pause between two streams. Each pause is twice the
	// one before, less up to half of it at random. After a stream that has lasted for
	// mostPause, the pause is the least again.
	leastPause = 500 * time.Millisecond
	mostPause  = 30 * time.Second
	// asksAlive is how long a connection may be quiet before a ping, and aliveWithin how long
	// the answer may take: so a connection whose end was not seen, as behind a relay that was
	// switched off, ends. Some servers, such as Envoy Gateway's, allow a ping only every five
	// minutes: they close the connection with tooMany, and are then asked after asksSeldom.
	asksAlive   = 30 * time.Second
	asksSeldom  = 5*time.Minute + 30*time.Second
	aliveWithin = 10 * time.Second
	tooMany     = "too_many_pings"
	// rest is the pause after each response that is read.
	rest = 20 * time.Millisecond
)

var errTooLarge = fmt.Errorf("the configuration is too large: a message may have at most %d bytes", maxMessage)

// run opens one stream after the other, until the source is closed.
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
		if !errors.Is(err, errTooLarge) {
			err = fmt.Errorf("the control plane is away: %w", err)
		}
		if now, _, _ := s.state(); now == nil && !s.at.startEmpty { // Load waits, and nobody else says why
			s.log.Warn("xDS: there is no configuration yet", "source", s.at.shown, "err", err)
		}
		s.set(nil, "", err)
		if time.Since(began) > mostPause {
			pause = leastPause
		}
		s.sleep(pause - rand.N(pause/2))
		pause = min(2*pause, mostPause)
	}
}

// stream runs one stream, until it ends.
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
	return s.converse(stream)
}

// A stream is a stream to a control plane.
type stream = discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient

// converse asks and answers on a stream, until it ends.
func (s *Source) converse(stream stream) error {
	newest, ended := make(chan *discovery.DiscoveryResponse, 1), make(chan error, 1)
	go func() { ended <- s.receive(stream, newest) }()
	ask := &discovery.DiscoveryRequest{Node: s.at.node, TypeUrl: typeURL} // without a version, so that the server answers
	for refused := (*discovery.DiscoveryResponse)(nil); ; {
		if err := stream.Send(ask); err != nil && !errors.Is(err, io.EOF) { // receive says why a stream has ended
			return reason(err)
		}
		select {
		case err := <-ended:
			return reason(err)
		case response := <-newest:
			if refused != nil && refused.GetVersionInfo() == response.GetVersionInfo() { // the server sends a refused one again at once
				s.sleep(leastPause)
				response = newer(newest, response)
			}
			refused = nil
			if ask = s.take(response); ask.GetErrorDetail() != nil {
				refused = response
			}
		}
	}
}

// receive reads responses until the stream ends. If several come while one is being
// converted, it keeps the last: each is a whole configuration.
func (s *Source) receive(stream stream, newest chan *discovery.DiscoveryResponse) error {
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		newer(newest, nil)
		newest <- response // there is room, since nobody else sends
		s.sleep(rest)
	}
}

// newer returns the response in newest, or if there is none the given one.
func newer(newest <-chan *discovery.DiscoveryResponse, response *discovery.DiscoveryResponse) *discovery.DiscoveryResponse {
	select {
	case response = <-newest:
	default:
	}
	return response
}

// reason returns the error of a call in the words of the server.
func reason(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it has ended the stream")
	case status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max"): // gRPC's words for maxMessage
		return fmt.Errorf("%w: %s", errTooLarge, status.Convert(err).Message())
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
