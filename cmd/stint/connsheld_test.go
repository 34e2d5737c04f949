package main_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// TestFewDescriptorsHTTP2 sends requests that the server behind does not answer, 250 at
// once on one connection of HTTP/2: each would hold a connection to that server. Operators
// and other clients are answered all the same, and this client again afterwards.
func TestFewDescriptorsHTTP2(t *testing.T) {
	finish := make(chan struct{})
	end := sync.OnceFunc(func() { close(finish) })
	behind := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			<-finish
		}
	}))
	defer behind.Close()
	defer end()
	at := fewDescriptors(t, 256, "proxy --limit 1000000/s --listen 127.0.0.1:0 --admin 127.0.0.1:0 --upstream "+behind.URL)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	flood := &http.Client{Transport: &http.Transport{Protocols: protocols}, Timeout: patience}
	status := func(client *http.Client, url string) int {
		answer, err := client.Get(url)
		if err != nil {
			t.Logf("%s: %v", url, err)
			return 0
		}
		_ = answer.Body.Close() // the status says it
		return answer.StatusCode
	}
	const streams = 250
	got := make(chan int, streams)
	status(flood, "http://"+at["address"]+"/") // one connection for all
	for range streams {
		go func() { got <- status(flood, "http://"+at["address"]+"/hold") }()
	}
	// 256 less 64, half of it for the server behind, and a quarter of that for one address.
	const held = 24
	for range streams - held {
		select {
		case s := <-got:
			if s != http.StatusServiceUnavailable {
				t.Errorf("beyond the bound: %d", s)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("more requests than one address may have are held")
		}
	}
	one := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	if s := status(one, "http://"+at["admin"]+"/livez"); s != http.StatusOK {
		t.Errorf("liveness: %d", s)
	}
	other := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(ctx, network, address)
	}}}
	if s := status(other, "http://"+at["address"]+"/"); s != http.StatusOK {
		t.Errorf("another client: %d", s)
	}
	end()
	for range held {
		if s := <-got; s != http.StatusOK {
			t.Errorf("within the bound: %d", s)
		}
	}
	if s := status(flood, "http://"+at["address"]+"/"); s != http.StatusOK {
		t.Errorf("afterwards: %d", s)
	}
}
