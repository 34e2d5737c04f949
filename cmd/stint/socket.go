package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// listenHTTP opens --http, an address or a Unix socket.
func listenHTTP(ctx context.Context, address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return listenUnix(ctx, path)
	}
	return listen(ctx, "--http", address)
}

// socketMode lets the owner and the group ask.
const socketMode = 0o660

// listenUnix opens a Unix socket, in place of one on which no process listens any
// more.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	var config net.ListenConfig
	ln, err := config.Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		var dialer net.Dialer
		conn, dialed := dialer.DialContext(ctx, "unix", path)
		switch {
		case dialed == nil:
			_ = conn.Close() // it only showed that a process listens
			return nil, fmt.Errorf("--http unix:%s: something else listens there already", path)
		case !isSocket(path):
			return nil, fmt.Errorf("--http unix:%s: a file that is no socket is there: remove it, or name another path", path)
		case errors.Is(dialed, syscall.ECONNREFUSED):
			if err = os.Remove(path); err == nil {
				ln, err = config.Listen(ctx, "unix", path)
			}
		}
	}
	if err == nil {
		err = os.Chmod(path, socketMode)
	}
	if err != nil {
		if ln != nil {
			_ = ln.Close() // the error is returned
		}
		return nil, fmt.Errorf("--http unix:%s: %w", path, err)
	}
	return ln, nil
}

// isSocket reports whether there is a socket, and not a link to one.
func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == os.ModeSocket
}
