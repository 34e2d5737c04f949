package request

import (
	"io"
	"net/http"
	"sync"
)

// A Held is a request body that is in memory until it has been read or is closed, since an answer may take
// long; net/http/httputil.ReverseProxy does not close it. If it holds only the beginning, the rest is read
// from the client: servers must not take the beginning for the whole body.
type Held struct {
	Data  []byte // what was read; it may be replaced before the first Read
	Whole bool   // Data is the whole body
	Freed func() // called when Data is released, or more often; may be nil

	mu     sync.Mutex
	end    error // the error after Data; nil if the rest is still to be read
	client io.ReadCloser
}

// Hold reads a body, up to one byte more than most. The error says why that failed.
func Hold(client io.ReadCloser, most int64) (*Held, error) {
	data, err := io.ReadAll(io.LimitReader(client, most+1))
	b := &Held{Data: data, Whole: err == nil && int64(len(data)) <= most, end: err, client: client}
	if b.Whole {
		b.end = io.EOF
	}
	return b, err
}

// Read implements [io.Reader].
func (b *Held) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	n, end := copy(p, b.Data), b.end
	if b.Data = b.Data[n:]; len(b.Data) == 0 {
		b.free()
	}
	b.mu.Unlock()
	switch {
	case n > 0 || len(p) == 0:
		return n, nil
	case end == nil:
		return b.client.Read(p)
	}
	return 0, end
}

// Close implements [io.Closer].
func (b *Held) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.Data) > 0 {
		b.end = http.ErrBodyReadAfterClose
	}
	b.free()
	return b.client.Close()
}

func (b *Held) free() {
	if b.Data = nil; b.Freed != nil {
		b.Freed()
	}
}
