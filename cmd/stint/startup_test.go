package main_test

import (
	"strings"
	"testing"
)

// TestHelpWords: help is had in the ways that other programs have it.
func TestHelpWords(t *testing.T) {
	ask := func(line string) string { return (session{args: strings.Fields(line)}).run() }
	for line, same := range map[string]string{
		"help": "--help", "help serve": "serve --help", "help override set": "override set --help", "-v": "version", "--version": "version",
	} {
		if got, want := ask(line), ask(same); got != want || strings.Contains(got, "exit") {
			t.Errorf("stint %s: %.200s, want what stint %s says", line, got, same)
		}
	}
	if got := ask("help serv"); !strings.Contains(got, "did you mean \"serve\"?") {
		t.Errorf("stint help serv: %s", got)
	}
}

// TestPorts: an address without a host says what to write, and a port that no
// address has is refused at the start, wherever it stands.
func TestPorts(t *testing.T) {
	file := writeFile(t, t.TempDir()+"/good.yaml", serveRules)
	const bad = "port 99999: a port is a number from 1 to 65535"
	for _, one := range [][2]string{
		{"serve -c FILE --http 8000", "--http: 8000: an address has a host and a port: write 127.0.0.1:8000 for this machine alone, :8000 for"},
		{"serve -c FILE --admin 9090", "write 127.0.0.1:9090"},
		{"proxy FILE --upstream http://127.0.0.1:9 --listen 8000", "--listen: 8000: an address has a host and a port"},
		{"serve -c FILE --http 127.0.0.1:99999", bad},
		{"proxy FILE --upstream https://h:99999", bad},
		{"serve -c FILE --store redis://h:99999", bad},
		{"serve -c FILE --store redis://h:1,i:99999", bad},
		{"serve -c FILE --store redis://h:0", "port 0: a port is a number from 1 to 65535"},
		{"serve --rules https://h:99999/a.yaml", bad},
		{"serve --rules redis://h:99999", bad},
		{"serve --rules mysql://h:99999/stint", bad},
		{"rules nodes --server https://h:99999", bad},
		{"serve -c FILE --otlp http://h:99999", bad},
		{"serve -c FILE --webhook https://h:99999 --webhook-secret-file FILE", bad},
	} {
		args := strings.Fields(strings.ReplaceAll(one[0], "FILE", file))
		if got := (session{args: args}).run(); !strings.Contains(got, one[1]) || !strings.Contains(got, "exit 2") {
			t.Errorf("stint %s: %s, want %s", one[0], got, one[1])
		}
	}
}
