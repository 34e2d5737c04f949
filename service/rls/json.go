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

// JSON answers a request that is JSON, with a status of HTTP: 200 when allowed,
// 429 when denied. The answer is JSON, and for an error its text.
func (s *Service) JSON(ctx context.Context, body []byte, operator bool) (httpStatus int, answer []byte, err error) {
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

func httpStatusOf(c codes.Code) int {
	switch c {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.PermissionDenied:
		return http.StatusForbidden
	}
	return http.StatusServiceUnavailable
}
