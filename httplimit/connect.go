package httplimit

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strings"

	"github.com/stint-dev/stint/internal/ratefields"
	"github.com/stint-dev/stint/internal/request"
)

// A rpc is a protocol of calls over HTTP whose clients do not go by the HTTP status of an
// answer: they take a bare 429 for UNAVAILABLE, which they retry.
type rpc uint8

const (
	noRPC         rpc = iota
	grpcCall          // the call's status is in a header
	grpcWeb           // in a frame of the body
	grpcWebText       // the same, in base64
	connectUnary      // in a body of JSON
	connectStream     // in the last frame of the body
)

func rpcOf(r *http.Request) rpc {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch kind = strings.TrimSpace(kind); {
	case request.IsGRPC(kind):
		return grpcCall
	case kind == "application/grpc-web-text", strings.HasPrefix(kind, "application/grpc-web-text+"):
		return grpcWebText
	case kind == "application/grpc-web", strings.HasPrefix(kind, "application/grpc-web+"):
		return grpcWeb
	case strings.HasPrefix(kind, "application/connect+"):
		return connectStream
	case r.Header.Get("Connect-Protocol-Version") == "1", r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "connect=v1"):
		return connectUnary
	}
	return noRPC
}

var connectCodes = map[uint8]string{
	grpcInvalid: "invalid_argument", grpcForbidden: "permission_denied", grpcExhausted: "resource_exhausted",
	grpcInternal: "internal", grpcUnavailable: "unavailable",
}

// writeRPC answers a call in its protocol.
func (f *refusal) writeRPC(w http.ResponseWriter, r *http.Request, protocol rpc) {
	kind := r.Header.Get("Content-Type")
	status, body := http.StatusOK, []byte(nil)
	switch protocol {
	case grpcCall:
		f.writeGRPC(w)
		return
	case connectUnary:
		kind, status, body = "application/json", f.status, f.connectError()
	case connectStream: // the flag of the last frame, the length, and the error
		body = frame(2, append(append([]byte(`{"error":`), f.connectError()...), '}'))
	default: // the flag of trailers, the length, and the trailers
		body = frame(0x80, f.trailers())
		if protocol == grpcWebText {
			body = base64.StdEncoding.AppendEncode(nil, body)
		}
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Del("Content-Length")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // an error means that the client has gone
	}
}

func frame(flags byte, message []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message)))
	return append(b, message...)
}

// trailers returns the trailers of a gRPC-Web call, which stand in its last frame.
func (f *refusal) trailers() []byte {
	h := http.Header{}
	f.setGRPC(h)
	var b strings.Builder
	for _, name := range []string{"Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin"} {
		if v := h.Get(name); v != "" {
			b.WriteString(strings.ToLower(name) + ": " + v + "\r\n")
		}
	}
	return []byte(b.String())
}

func (f *refusal) connectError() []byte {
	b := append([]byte(`{"code":"`), connectCodes[f.grpc]...)
	b = append(append(append(b, `","message":`...), ratefields.Quote(f.title)...), `,"details":[`...)
	for i, d := range f.parts() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, `{"type":"google.rpc.`...), d.name...), `","value":"`...)
		b = append(base64.RawStdEncoding.AppendEncode(b, d.body), `"}`...)
	}
	return append(b, "]}"...)
}
