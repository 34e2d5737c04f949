package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

func TestShared(t *testing.T) {
	var out strings.Builder
	run(&out, redisstore.Options{URL: redistest.Start(t).URL(), Timeout: time.Minute}) // the machine may be busy
	const want = `server a: allowed true, 2 left
server b: allowed true, 1 left
server a: allowed true, 0 left
server b: allowed false, 0 left
`
	if out.String() != want {
		t.Errorf("it printed\n%s\nwant\n%s", &out, want)
	}
}
