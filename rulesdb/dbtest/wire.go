package dbtest

import (
	"bytes"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Wire is a proxy to a server that can go silent, like a network that loses everything:
// connections stay open, and nothing comes through.
type Wire struct {
	// URL is the URL of the server through the wire.
	URL string

	silent atomic.Bool
	rate   atomic.Int64 // bytes a second; 0 for no bound
	cut    atomic.Value // the text of CutAfter
	lose   atomic.Value // the text of Lose
	gone   atomic.Int64 // how many connections have lost the text of Lose
	mu     sync.Mutex
	open   []net.Conn
}

// NewWire returns a wire to the server of a URL.
func NewWire(t testing.TB, behind string) *Wire {
	t.Helper()
	u, err := url.Parse(behind)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{URL: strings.Replace(behind, u.Host, l.Addr().String(), 1)}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			w.join(in, u.Host)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		w.Cut()
	})
	return w
}

// join copies bytes between a connection and the server.
func (w *Wire) join(in net.Conn, address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = append(w.open, in)
	if w.silent.Load() {
		return // the connection is accepted, and gets no answer
	}
	out, err := net.Dial("tcp", address)
	if err != nil {
		in.Close()
		return
	}
	w.open = append(w.open, out)
	muted := new(atomic.Bool) // the server's answers are dropped
	go w.carry(in, out, false, muted)
	go w.carry(out, in, true, muted)
}

func (w *Wire) carry(to, from net.Conn, toServer bool, muted *atomic.Bool) {
	buffer, lost, free := make([]byte, 32<<10), false, time.Time{}
	for {
		n, err := from.Read(buffer)
		if lost = lost || w.silent.Load(); lost {
			if err != nil {
				return // the other end must not notice
			}
			continue
		}
		if err == nil && toServer && has(buffer[:n], &w.lose) {
			lost = true
			w.gone.Add(1)
			continue
		}
		if err == nil && !toServer && muted.Load() {
			err = net.ErrClosed
		}
		if err == nil {
			cut := toServer && has(buffer[:n], &w.cut)
			if cut {
				muted.Store(true) // before the server can answer
			}
			_, err = to.Write(buffer[:n])
			if cut {
				from.Close()
				return
			}
			if rate := w.rate.Load(); rate > 0 {
				if free.Before(time.Now()) {
					free = time.Now()
				}
				free = free.Add(time.Second * time.Duration(n) / time.Duration(rate))
				time.Sleep(time.Until(free))
			}
		}
		if err != nil {
			to.Close()
			from.Close()
			return
		}
	}
}

// has reports whether data contains a text, in lower or upper case.
func has(data []byte, lower *atomic.Value) bool {
	text, _ := lower.Load().([]byte)
	return len(text) > 0 && bytes.Contains(bytes.ToLower(data), text)
}

// Silence drops everything from now on.
func (w *Wire) Silence() { w.silent.Store(true) }

// Slow bounds each direction to so many bytes a second from now on.
func (w *Wire) Slow(bytes int) { w.rate.Store(int64(bytes)) }

// CutAfter closes each connection that sends a text, in lower or upper case, from now on: the
// server gets the text, and its answer is lost. "" turns that off.
func (w *Wire) CutAfter(text string) { w.cut.Store([]byte(strings.ToLower(text))) }

// Lose drops everything that a connection sends from a text on, in lower or upper case, from now
// on. The connection stays open and gets no answer. "" turns that off.
func (w *Wire) Lose(text string) { w.lose.Store([]byte(strings.ToLower(text))) }

// Lost returns how many connections have lost the text of Lose.
func (w *Wire) Lost() int { return int(w.gone.Load()) }

// Restore forwards new connections again. Connections that were silent stay silent.
func (w *Wire) Restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent.Store(false)
}

// Cut closes all connections.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		c.Close()
	}
	w.open = nil
}
