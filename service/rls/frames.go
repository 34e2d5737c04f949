package rls

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// A frames follows one direction of a connection of HTTP/2 (RFC 9113, section 4.1).
type frames struct {
	left   int // of what is not looked at, or of the payload of the frame
	head   []byte
	kind   http2.FrameType
	stream uint32

	data   func(stream uint32, n int)
	begins func(stream uint32)
	ends   func(stream uint32, reset bool)
}

const frameHead = 9

// pass follows the next bytes.
func (f *frames) pass(b []byte) {
	for len(b) > 0 {
		if f.left > 0 {
			n := min(f.left, len(b))
			if f.kind == http2.FrameData && f.data != nil && f.stream > 0 {
				f.data(f.stream, n)
			}
			f.left, b = f.left-n, b[n:]
			continue
		}
		n := min(frameHead-len(f.head), len(b))
		if f.head, b = append(f.head, b[:n]...), b[n:]; len(f.head) == frameHead {
			f.begin()
		}
	}
}

// begin looks at the head of a frame.
func (f *frames) begin() {
	h := f.head
	f.head = h[:0]
	f.left, f.kind, f.stream = int(h[0])<<16|int(h[1])<<8|int(h[2]), http2.FrameType(h[3]), binary.BigEndian.Uint32(h[5:])&(1<<31-1)
	ends := http2.Flags(h[4]).Has(http2.FlagDataEndStream) && (f.kind == http2.FrameData || f.kind == http2.FrameHeaders)
	switch {
	case f.kind == http2.FrameHeaders && f.begins != nil:
		f.begins(f.stream)
	case f.kind == http2.FrameRSTStream || ends:
		f.ends(f.stream, f.kind == http2.FrameRSTStream)
	}
}
