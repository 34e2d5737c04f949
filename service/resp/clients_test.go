package resp_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/service/resp"
)

func TestGoRedis(t *testing.T) {
	for protocol := 2; protocol <= 3; protocol++ {
		t.Run(fmt.Sprint("RESP ", protocol), func(t *testing.T) {
			address, _ := start(t, resp.Options{Admit: func(token string) bool { return token == "let-me-in" }})
			client := redis.NewClient(&redis.Options{Addr: address, Protocol: protocol, Username: "x", Password: "let-me-in"})
			defer client.Close()
			pipe := client.Pipeline()
			var all []*redis.Cmd
			for range 20 {
				all = append(all, pipe.Do(t.Context(), "CL.THROTTLE", "user", 9, 1, 3600))
			}
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, cmd := range all {
				got, err := cmd.Int64Slice()
				if err != nil || len(got) != 5 || (got[0] == 0) != (i < 10) || got[1] != 10 || got[2] != max(int64(9-i), 0) {
					t.Errorf("call %d: %v, %v", i, got, err)
				}
			}
			answer, err := client.Do(t.Context(), "STINT.CHECK", "path", "/login", "ip", "192.0.2.1").Result()
			if err != nil || !strings.Contains(fmt.Sprint(answer), "login") {
				t.Errorf("%v, %v", answer, err)
			}
		})
	}
}

// TestInFlight holds a place by a reservation, which other commands cannot.
func TestInFlight(t *testing.T) {
	address, _ := start(t, resp.Options{})
	client := redis.NewClient(&redis.Options{Addr: address, Protocol: 3})
	defer client.Close()
	ask := func(args ...any) map[any]any {
		t.Helper()
		answer, err := client.Do(t.Context(), args...).Result()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return answer.(map[any]any)
	}
	reserve := []any{"STINT.RESERVE", "path", "/gpu"}
	for range 2 {
		first := ask(reserve...)
		if second := ask(reserve...); first["allowed"] != true || second["allowed"] != false {
			t.Fatalf("%v, then %v", first, second)
		}
		for range 2 {
			ask("STINT.SETTLE", first["reservation"], 1)
		}
	}
	if err := client.Do(t.Context(), "STINT.CHECK", "path", "/gpu").Err(); err == nil || !strings.Contains(err.Error(), "STINT.RESERVE") {
		t.Errorf("a check: %v", err)
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s\n(Debian: apt-get install redis-tools)", name, err, out)
	}
	return string(out)
}

func TestRedisCLI(t *testing.T) {
	address, _ := start(t, resp.Options{})
	_, port, _ := strings.Cut(address, ":")
	got := run(t, "redis-cli", "-h", "127.0.0.1", "-p", port, "CL.THROTTLE", "user123", "15", "30", "60")
	if got != "0\n16\n15\n-1\n2\n" {
		t.Errorf("%q", got)
	}
	got = run(t, "redis-cli", "-3", "-h", "127.0.0.1", "-p", port, "STINT.PEEK", "path", "/login", "ip", "192.0.2.1")
	if !strings.Contains(got, "remaining 2\n") {
		t.Errorf("%q", got)
	}
}

func TestRedisBenchmark(t *testing.T) {
	address, _ := start(t, resp.Options{})
	_, port, _ := strings.Cut(address, ":")
	got := run(t, "redis-benchmark", "-h", "127.0.0.1", "-p", port, "-n", "20000", "-c", "20", "-P", "16", "-q", "CL.THROTTLE", "k", "15", "30", "60")
	if !strings.Contains(got, "requests per second") {
		t.Errorf("%q", got)
	}
}
