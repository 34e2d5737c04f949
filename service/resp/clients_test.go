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

// TestInFlight holds a place by a reservation, which other commands cannot. Of a queue, all say
// how long to wait, or their callers cannot keep the pace.
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
	for i, want := range []any{nil, int64(3_600_000), int64(7_200_000)} { // the first starts at once
		command := []string{"STINT.CHECK", "STINT.CHECK", "STINT.RESERVE"}[i]
		if got := ask(command, "path", "/queue", "ip", "192.0.2.7")["delay_ms"]; got != want {
			t.Errorf("%s, behind %d: a delay of %v ms, want %v", command, i, got, want)
		}
	}
}

// TestHeaderNames counts a header under one name, in whatever case it comes, as /v1 does.
func TestHeaderNames(t *testing.T) {
	address, _ := start(t, resp.Options{})
	got := talk(t, address, "STINT.CHECK header.X-Api-Key a\r\nSTINT.CHECK header.x-api-key a\r\nSTINT.CHECK header.x-api-key a HEADER.X-API-KEY b\r\nQUIT\r\n")
	if strings.Count(got, "allowed\r\n:0") != 1 || !strings.Contains(got, "an attribute twice") {
		t.Errorf("a client twice, and a header twice: %q; want it denied once, and one error", got)
	}
}

// TestRedisTools asks with the programs that come with Redis.
func TestRedisTools(t *testing.T) {
	address, _ := start(t, resp.Options{})
	_, port, _ := strings.Cut(address, ":")
	for _, one := range []struct{ tool, want string }{
		{"redis-cli -h 127.0.0.1 -p PORT CL.THROTTLE user123 15 30 60", "0\n16\n15\n-1\n2\n"},
		{"redis-cli -3 -h 127.0.0.1 -p PORT STINT.PEEK path /login ip 192.0.2.1", "remaining 2\n"},
		{"redis-benchmark -h 127.0.0.1 -p PORT -n 20000 -c 20 -P 16 -q CL.THROTTLE k 15 30 60", "requests per second"},
	} {
		words := strings.Fields(strings.Replace(one.tool, "PORT", port, 1))
		out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), one.want) {
			t.Errorf("%s: %q, %v (Debian: apt-get install redis-tools)", one.tool, out, err)
		}
	}
}
