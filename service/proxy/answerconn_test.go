package proxy_test

import (
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/service/proxy"
)

// A slowReader is a connection whose client reads at a rate. Its system has room for more only
// once a whole piece is free.
type slowReader struct {
	net.Conn
	began              time.Time
	rate, piece, taken int64
	deadline           time.Time
}

func (c *slowReader) acknowledged() (int64, bool) {
	return int64(time.Since(c.began).Seconds() * float64(c.rate)), true
}

func (c *slowReader) SetWriteDeadline(t time.Time) error { c.deadline = t; return nil }

func (c *slowReader) Write(p []byte) (int, error) {
	for {
		if free, _ := c.acknowledged(); free-c.taken >= c.piece {
			n := min(int64(len(p)), c.piece)
			c.taken += n
			return int(n), nil
		}
		if !time.Now().Before(c.deadline) {
			return 0, os.ErrDeadlineExceeded
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestAnswerRate has clients that read at a rate for an hour: only those below the least rate are
// cut, although their systems have room later, and in large pieces.
func TestAnswerRate(t *testing.T) {
	for _, try := range []struct {
		rate, piece int64
		cut         bool
	}{{300, 20_000, true}, {300, 60_000, true}, {450, 8000, true}, {550, 20_000, false}, {550, 1000, false}, {5000, 20_000, false}} {
		synctest.Test(t, func(t *testing.T) {
			under := &slowReader{began: time.Now(), rate: try.rate, piece: try.piece}
			conn := proxy.NewAnswerConn(under, under.acknowledged, time.Minute, 500)
			var err error
			for time.Since(under.began) < time.Hour && err == nil {
				_, err = conn.Write(make([]byte, try.piece))
			}
			if cut := err != nil; cut != try.cut {
				t.Errorf("%d bytes a second, room in pieces of %d: cut %v after %v, want %v", try.rate, try.piece, cut, time.Since(under.began), try.cut)
			}
		})
	}
}
