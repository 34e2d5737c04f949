package rls

import (
	"context"
	"net/http"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

var readJSON = protojson.UnmarshalOptions{RecursionLimit: 16}

// JSON answers a request in JSON. The HTTP status is 200 when the request is allowed and 429 when
// it is denied. The answer is JSON; that of an error is its text.
func (s *Service) JSON(ctx context.Context, body []byte, operator bool) (httpStatus int, answer []byte, err error) {
	if objects(body) > maxObjects { // before decoding, since objects would take a hundred times their bytes
		s.o.Observer.Failed(entrypoint, denied(0, "descriptors: more than %d, or of more than %d entries", MaxDescriptors, MaxEntries))
		answer, err = protojson.Marshal(denial(nil, 0))
		return http.StatusTooManyRequests, answer, err
	}
	var req pb.RateLimitRequest
	if err := readJSON.Unmarshal(body, &req); err != nil {
		fault := invalid("the body is no RateLimitRequest of envoy.service.ratelimit.v3")
		s.o.Observer.Failed(entrypoint, fault)
		return http.StatusBadRequest, nil, fault
	}
	resp, err := s.Decide(ctx, &req, operator)
	if err != nil {
		st := status.Convert(err)
		return httpStatusOf(st.Code()), nil, &fault{code: st.Code(), reason: st.Message()}
	}
	answer, err = protojson.Marshal(resp)
	switch {
	case err != nil:
		return http.StatusInternalServerError, nil, err
	case resp.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT:
		return http.StatusTooManyRequests, answer, nil
	}
	return http.StatusOK, answer, nil
}

// maxObjects is the most objects in a request: itself, descriptors, their entries and limits.
const maxObjects = 1 + MaxDescriptors*(1+MaxEntries+1)

// objects returns how many objects a JSON text has.
func objects(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && c == '{':
			n++
		}
	}
	return n
}

func httpStatusOf(c codes.Code) int {
	switch c {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.PermissionDenied:
		return http.StatusForbidden
	}
	return http.StatusServiceUnavailable
}
