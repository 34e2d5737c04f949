package server

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Local reports whether only this machine can reach a listener: it is on a
// loopback address or a Unix socket.
func Local(addr net.Addr) bool {
	switch a := addr.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// CheckHost answers requests alone whose Host names this machine, localhost or
// a loopback address, whatever the port. A page whose name was made to point at
// 127.0.0.1 is kept out by it: browsers send the name.
func CheckHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !localHost(r.Host) {
			p := problem{status: http.StatusMisdirectedRequest, detail: "Host names another machine: this address is for localhost, 127.0.0.1 and [::1] alone"}
			p.write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func localHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// Guard returns what a listener on addr is to serve: behind CheckHost on a
// loopback address, else the handler itself.
func Guard(next http.Handler, addr net.Addr) http.Handler {
	if _, tcp := addr.(*net.TCPAddr); tcp && Local(addr) {
		return CheckHost(next)
	}
	return next
}
