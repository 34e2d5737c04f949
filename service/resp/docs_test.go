package resp_test

import (
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/pages"
	"github.com/stint-dev/stint/service/resp"
)

// TestDocsCommands sends the commands of docs/RESP.md by redis-cli, and
// compares what it prints.
func TestDocsCommands(t *testing.T) {
	text := pages.Read(t, "docs/RESP.md")
	if !strings.Contains(text, "limits: [\"2 per hour sliding_log\"]") || !strings.Contains(someRules, "limits: [\"2 per hour sliding_log\"]") {
		t.Error("the rules of the page are not those of the test")
	}
	address, _ := start(t, resp.Options{})
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, block := range pages.Blocks(text, "redis") {
		for _, one := range strings.Split(block, "> ")[1:] {
			command, want, _ := strings.Cut(one, "\n")
			args := append([]string{"--no-raw", "-h", "127.0.0.1", "-p", port}, strings.Fields(command)...)
			got, err := exec.Command("redis-cli", args...).Output()
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != want {
				t.Errorf("%s\ngot:\n%s\nwant:\n%s", command, got, want)
			}
			commands++
		}
	}
	if commands != 3 {
		t.Errorf("%d commands", commands)
	}
}
