package lab

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
)

// MaxBody bounds a request in bytes.
const MaxBody = 4 << 20

// Simulator returns the handler of POST /v1/simulate, which takes a [Request] and answers with an
// [Answer], both JSON, whatever the Content-Type. A wrong request is answered with status 400 and a
// problem document (RFC 9457). As many simulations run at once as there are processors, or one if
// aside is true; others wait for their turn.
func Simulator(aside bool) http.Handler {
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	if aside {
		turns = make(chan struct{}, 1)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, status, err := readBody(w, r) // before taking a turn: a slow body must not hold one
		if err != nil {
			writeError(w, status, err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-ctx.Done():
			writeError(w, http.StatusServiceUnavailable, "too many simulations at once: try again")
			return
		}
		if aside {
			ctx = withSlices(ctx)
		}
		answer, err := SimulateJSON(ctx, body)
		switch {
		case errors.Is(err, errLong):
			writeError(w, http.StatusServiceUnavailable, err.Error())
		case err != nil:
			writeError(w, http.StatusBadRequest, err.Error())
		default:
			writeJSON(w, http.StatusOK, answer)
		}
	})
}

// readBody returns the body, or an error and the status to answer with.
func readBody(w http.ResponseWriter, r *http.Request) (body []byte, status int, err error) {
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, http.StatusRequestEntityTooLarge, errors.New("the body is over 4 MiB")
	}
	if err != nil {
		return nil, http.StatusBadRequest, errors.New("the body ended early")
	}
	return body, 0, nil
}

func writeError(w http.ResponseWriter, status int, text string) {
	writeHeader(w, "application/problem+json", status)
	_ = json.NewEncoder(w).Encode(struct { // the error has no reader: see below
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", http.StatusText(status), status, text})
}

func writeHeader(w http.ResponseWriter, kind string, status int) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	writeHeader(w, "application/json", status)
	_ = json.NewEncoder(w).Encode(v) // the error has no reader: the client may have gone
}
