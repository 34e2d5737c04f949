package resp_test

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/service/resp"
)

// TestTransactionClients sends MULTI and EXEC as libraries and redis-cli do.
func TestTransactionClients(t *testing.T) {
	address, _ := start(t, resp.Options{})
	for protocol := 2; protocol <= 3; protocol++ {
		t.Run(fmt.Sprint("go-redis, RESP ", protocol), func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: address, Protocol: protocol})
			defer client.Close()
			key := fmt.Sprint("go-redis ", protocol)
			answers, err := client.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
				for range 3 {
					pipe.Do(t.Context(), "CL.THROTTLE", key, 1, 1, 3600)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for i, one := range answers {
				if got, err := one.(*redis.Cmd).Int64Slice(); err != nil || len(got) != 5 || (got[0] == 0) != (i < 2) {
					t.Errorf("%d: %v, %v", i, got, err)
				}
			}
		})
	}
	t.Run("redis-cli", func(t *testing.T) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		cli := exec.Command("redis-cli", "-h", "127.0.0.1", "-p", port)
		cli.Stdin = strings.NewReader("MULTI\nCL.THROTTLE redis-cli 1 1 3600\nPING\nEXEC\nSTINT.CHEK x y\n")
		got, err := cli.CombinedOutput()
		want := "OK\nQUEUED\nQUEUED\n0\n2\n1\n-1\n3600\nPONG\nERR unknown command 'STINT.CHEK', did you mean 'STINT.CHECK'?\n\n"
		if err != nil || string(got) != want {
			t.Errorf("%v\n%s", err, got)
		}
	})
}

// TestTransactionBounds sends more than a transaction holds: nothing of it runs,
// and the connection goes on.
func TestTransactionBounds(t *testing.T) {
	address, _ := start(t, resp.Options{})
	for name, command := range map[string]string{
		"commands": strings.Repeat("CL.THROTTLE key 9 1 3600\r\n", 257),
		"bytes":    strings.Repeat("ECHO "+strings.Repeat("x", 30_000)+"\r\n", 3),
	} {
		t.Run(name, func(t *testing.T) {
			got := talk(t, address, "MULTI\r\n"+command+"EXEC\r\nCL.THROTTLE key 9 1 3600 0\r\nQUIT\r\n")
			if !strings.Contains(got, "-ERR a transaction has at most 256 commands and 65536 bytes") ||
				!strings.HasSuffix(got, "-EXECABORT Transaction discarded because of previous errors.\r\n*5\r\n:0\r\n:10\r\n:10\r\n:-1\r\n:0\r\n+OK\r\n") {
				t.Errorf("%.300q … %.200q", got, got[max(0, len(got)-200):])
			}
		})
	}
}
