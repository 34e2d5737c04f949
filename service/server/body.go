package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
)

// readBody reads a body of at most most bytes into b.
func readBody(b []byte, w http.ResponseWriter, r *http.Request, most int) ([]byte, *problem) {
	b = b[:0]
	if p := checkContent(r); p != nil {
		return b, p
	}
	if r.ContentLength > int64(most) {
		return b, tooLarge(w, r, most)
	}
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > most:
			return b, tooLarge(w, r, most)
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, badRead(w, err)
		}
	}
}

// checkContent refuses encoded bodies. It accepts any Content-Type: a body that is not
// JSON is refused later, curl -d calls every body a form, and admit keeps out pages of
// other origins.
func checkContent(r *http.Request) *problem {
	if len(r.Header["Content-Encoding"]) > 0 {
		return &problem{status: http.StatusUnsupportedMediaType, detail: "the body is encoded: send it as it is, without Content-Encoding"}
	}
	return nil
}

// maxSkipped is how many bytes of a too large body are read and thrown away.
const maxSkipped = 16 << 20

// tooLarge throws the rest of a body away: a client that is cut off while it sends would
// not read the answer, and may let its request pass without one. Then the connection ends.
func tooLarge(w http.ResponseWriter, r *http.Request, most int) *problem {
	if len(r.Header["Expect"]) == 0 { // or the client waits for the answer before it sends
		_, _ = io.CopyN(io.Discard, r.Body, maxSkipped)
	}
	w.Header().Set("Connection", "close")
	return &problem{status: http.StatusRequestEntityTooLarge, detail: "the body is larger than " + sizeText(most)}
}

func badRead(w http.ResponseWriter, err error) *problem {
	w.Header().Set("Connection", "close")
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return &problem{status: http.StatusRequestTimeout, detail: "the body took too long"}
	}
	return &problem{status: http.StatusBadRequest, detail: "the body ended too early"}
}

// sizeText writes a number of bytes, in KiB if it is a multiple of 1,024.
func sizeText(n int) string {
	if n%1024 == 0 {
		return strconv.Itoa(n/1024) + " KiB"
	}
	return strconv.Itoa(n) + " bytes"
}
