package httplimit

import (
	"fmt"
	"net/http"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// ByIP returns middleware that holds each client's address to limits, such as
// "100/min", in the memory of this process:
//
//	r.Use(httplimit.ByIP("site", "100/min", "1k/h"))
//
// The address is the connection's: behind a proxy every client has the proxy's,
// so use [New] with [IPKey] there. The name is that of the limiter. ByIP is for
// limits that are constants in the code: like regexp.MustCompile it panics on a
// text that does not parse. New returns an error, and takes a store and options.
func ByIP(name string, limits ...string) func(http.Handler) http.Handler {
	parsed := make([]stint.Limit, len(limits))
	for i, text := range limits {
		var err error
		if parsed[i], err = stint.Parse(text); err != nil {
			panic(fmt.Sprintf("httplimit: ByIP(%q): %v", name, err))
		}
	}
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), name, parsed...)
	if err != nil {
		panic(fmt.Sprintf("httplimit: ByIP(%q): %v", name, err))
	}
	middleware, err := New(limiter, IPKey(ClientIP{}), Options{})
	if err != nil {
		panic(err)
	}
	return middleware
}
