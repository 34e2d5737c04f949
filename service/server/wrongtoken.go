package server

import (
	"context"
	"net/http"

	"github.com/stint-dev/stint/service/observe"
)

// wrongTokens is the context key of the function that notes a wrong token of a request.
type wrongTokens struct{}

// noting returns a request whose wrong tokens are counted for an interface.
func noting(r *http.Request, o *observe.Observer, at observe.Interface) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), wrongTokens{}, func() { o.WrongToken(at, r.RemoteAddr) }))
}

// WrongToken notes that a request shows a token that lets nobody in.
func WrongToken(r *http.Request) {
	if note, ok := r.Context().Value(wrongTokens{}).(func()); ok {
		note()
	}
}

// noteShown notes a wrong token if the request has an Authorization header. A request
// without one, such as the first of a browser, has tried no token.
func noteShown(r *http.Request) {
	if r.Header["Authorization"] != nil {
		WrongToken(r)
	}
}
