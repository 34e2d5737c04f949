package proxy

import (
	"net/http"
	"net/http/httputil"
)

// For the tests, which are outside of the package.

func NewTransport() http.RoundTripper { return newTransport() }
func NewBuffers() httputil.BufferPool { return &buffers{} }
