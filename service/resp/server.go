package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"

	"github.com/stint-dev/stint/service/drain"
	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/rules"
)

// Options are the options of a Server.
type Options struct {
	// Source has the rules. Required.
	Source *rules.Source
	// Store counts the limits that callers give with CL.THROTTLE.
	Store stint.Store
	// RoomFor returns an error if a limit that a caller gives may not be added to the limits under
	// a name. The default allows every limit.
	RoomFor func(name string, l stint.Limit) error
	// MapThrottle makes CL.THROTTLE ignore its limit and ask the rules, with the key as attribute
	// "key". The default value is false.
	MapThrottle bool
	// Admit reports whether the holder of a token may ask. The default admits every client.
	Admit func(token string) bool
	// Observer counts each decision. Required.
	Observer *observe.Observer
	// Log receives failures. Required.
	Log *slog.Logger
	// Version is the version that HELLO and INFO report.
	Version string
	// MaxConns is the most connections at once; further connections get an error and are closed.
	// The default value is 10,000.
	MaxConns int
	// Idle is how long a connection may be silent. The default value is 5 minutes.
	Idle time.Duration
	// Unknown is how long a connection may take to send a token, where one is required. The default
	// value is 5 s.
	Unknown time.Duration
	// Write is how long a client may take to accept its answers. The default
	// value is 10 s.
	Write time.Duration
	// TLS encrypts connections. By default they are not encrypted.
	TLS *tls.Config
}

// A Server answers Redis clients. It may be used from many goroutines at once.
type Server struct {
	o        Options
	throttle *throttle
	next     atomic.Int64 // the number of the last connection

	mu    sync.Mutex
	conns map[*conn]struct{}
	until time.Time // when all connections end, once Serve must stop
}

// New returns a Server.
func New(o Options) *Server {
	if o.MaxConns <= 0 {
		o.MaxConns = 10_000
	}
	if o.Idle <= 0 {
		o.Idle = 5 * time.Minute
	}
	if o.Unknown <= 0 {
		o.Unknown = 5 * time.Second
	}
	if o.Write <= 0 {
		o.Write = 10 * time.Second
	}
	if o.RoomFor == nil {
		o.RoomFor = func(string, stint.Limit) error { return nil }
	}
	return &Server{o: o, throttle: newThrottle(&o), conns: map[*conn]struct{}{}}
}

// Serve serves a listener until ctx ends, and closes it. Then it accepts the clients that have
// connected by then, gives those that have not asked anything a moment to do so, answers the
// commands that have arrived, for at most within, and closes the connections.
func (s *Server) Serve(ctx context.Context, ln net.Listener, within time.Duration) error {
	queue := drain.NewListener(ln)
	defer queue.Close()
	stop := context.AfterFunc(ctx, func() {
		if !queue.Empty() {
			_ = queue.Close()
		}
	})
	defer stop()
	if ln = queue; s.o.TLS != nil {
		ln = tls.NewListener(queue, s.o.TLS)
	}
	var all sync.WaitGroup
	var failed error
	for pause := time.Duration(0); ; {
		c, err := ln.Accept()
		if err == nil {
			pause = 0
			all.Go(func() { s.serve(c) })
			continue
		}
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, net.ErrClosed) {
			failed = err
			break
		}
		// The process may be out of file descriptors until other connections close.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.o.Log.Warn("a connection could not be accepted", "error", err, "again_in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	s.leave(time.Now().Add(within))
	all.Wait()
	return failed
}

// leave makes all connections end once they have answered what has arrived.
func (s *Server) leave(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = until
	for c := range s.conns {
		c.finish(until)
	}
}

// serve serves one connection until it ends.
func (s *Server) serve(with net.Conn) {
	defer with.Close()
	c := newConn(s, with)
	s.mu.Lock()
	full := len(s.conns) >= s.o.MaxConns
	if !full {
		s.conns[c] = struct{}{}
		if !s.until.IsZero() {
			c.finish(s.until)
		}
	}
	s.mu.Unlock()
	if full {
		_ = with.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = with.Write([]byte("-ERR max number of clients reached\r\n"))
		return
	}
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	c.run()
}

// Conns returns how many connections there are.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
