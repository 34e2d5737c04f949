package dbtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Redis starts a Redis that keeps nothing on the disk, or skips the test where
// there is none.
func Redis(t testing.TB) *Server {
	t.Helper()
	find(t, "redis-server")
	s := &Server{dir: directory(t), Port: port(t), name: "redis-server"}
	s.args = []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(s.Port), "--dir", s.dir, "--save", "", "--appendonly", "no"}
	s.URL = fmt.Sprintf("redis://127.0.0.1:%d", s.Port)
	s.Start(t)
	return s
}

// redisAnswers asks a Redis whether it is up.
func redisAnswers(ctx context.Context, port int) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(answer, "+PONG") {
		err = errors.New(strings.TrimSpace(answer))
	}
	return err
}
