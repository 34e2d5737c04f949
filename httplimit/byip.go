package httplimit

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// ByIP returns middleware that holds each client's address to limits, such as
// "100/min", in the memory of this process:
//
//	r.Use(httplimit.ByIP("site", "100/min", "1k/h"))
//
// The address is the connection's. Behind a proxy all clients have the proxy's address: use
// [New] with [IPKey] there. Requests without an address, as on a Unix socket, share a key,
// and the first of them is logged. name is the limiter's name. ByIP is for limits that are
// constants in the code: like regexp.MustCompile, it panics on a text that does not parse.
// New returns an error instead, and takes a store and options.
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
	var once sync.Once
	ip := IPKey(ClientIP{})
	middleware, err := New(limiter, func(r *http.Request) (key string, ok bool) {
		if key, ok = ip(r); !ok {
			once.Do(func() {
				slog.WarnContext(r.Context(), "httplimit: ByIP finds no address, as on a Unix socket: such requests share one key; use New with ClientIP.TrustUnix", "remote", r.RemoteAddr)
			})
		}
		return key, ok
	}, Options{})
	if err != nil {
		panic(err)
	}
	return middleware
}
