package httplimit

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"time"
)

// writeGRPC answers a gRPC call with headers alone (Trailers-Only): clients take a bare 429
// for UNAVAILABLE, which they retry at once. The details say when to retry and which limits
// denied, in the messages of google/rpc/error_details.proto.
func (f *refusal) writeGRPC(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	f.setGRPC(h)
	h.Del("Content-Length")
	w.WriteHeader(http.StatusOK)
}

func (f *refusal) setGRPC(h http.Header) {
	h.Set("Grpc-Status", strconv.Itoa(int(f.grpc)))
	h.Set("Grpc-Message", f.title) // printable ASCII without %: nothing to encode
	if details := f.details(); details != nil {
		h.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(details))
	}
}

const typeURL = "type.googleapis.com/google.rpc."

// A detail is a message of google/rpc/error_details.proto.
type detail struct {
	name string
	body []byte
}

// parts returns the details: when to retry and which limits denied, as far as that is known.
// They are encoded by hand: so few fields are not worth a dependency.
func (f *refusal) parts() (all []detail) {
	var quota []byte
	if f.retry > 0 {
		wait := max(time.Duration(f.wait), 1)
		var d []byte // google.protobuf.Duration
		d = appendInt(d, 1, uint64(wait/time.Second))
		d = appendInt(d, 2, uint64(wait%time.Second))
		all = append(all, detail{"RetryInfo", appendBytes(nil, 1, d)})
	}
	if f.grpc == grpcExhausted {
		for _, quoted := range f.violated {
			name, err := strconv.Unquote(quoted)
			if err != nil {
				name = quoted
			}
			one := appendBytes(nil, 1, []byte(name)) // QuotaFailure.Violation
			one = appendBytes(one, 2, []byte("limit exceeded"))
			quota = appendBytes(quota, 1, one)
		}
	}
	if quota != nil {
		all = append(all, detail{"QuotaFailure", quota})
	}
	return all
}

// details returns the refusal as an encoded google.rpc.Status; nil if it has no details.
func (f *refusal) details() []byte {
	parts := f.parts()
	if parts == nil {
		return nil
	}
	b := appendInt(nil, 1, uint64(f.grpc))
	b = appendBytes(b, 2, []byte(f.title))
	for _, d := range parts {
		wrapped := appendBytes(nil, 1, []byte(typeURL+d.name)) // google.protobuf.Any
		b = appendBytes(b, 3, appendBytes(wrapped, 2, d.body))
	}
	return b
}

// appendInt appends a number as a field of a protobuf message; it leaves out 0.
func appendInt(b []byte, field byte, n uint64) []byte {
	if n == 0 {
		return b
	}
	return binary.AppendUvarint(append(b, field<<3), n)
}

// appendBytes appends text, bytes or a message as a field of a protobuf message.
func appendBytes(b []byte, field byte, value []byte) []byte {
	return append(binary.AppendUvarint(append(b, field<<3|2), uint64(len(value))), value...)
}

// The gRPC codes of refusals.
const (
	grpcInvalid     = 3
	grpcInternal    = 13
	grpcForbidden   = 7
	grpcExhausted   = 8
	grpcUnavailable = 14
)
