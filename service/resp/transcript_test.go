package resp_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/service/resp"
)

// A transcript is what a client sends, a line "----", and what it gets, both
// with \r\n written out at the end of each line and other bytes as Go quotes
// them. The first line may name options.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no transcripts")
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			golden.Play(t, name, "\n====\n", func(sent string) string {
				address, _ := start(t, options(sent))
				return quoted(talk(t, address, unquoted(t, sent)))
			})
		})
	}
}

func options(sent string) resp.Options {
	o := resp.Options{}
	first, _, _ := strings.Cut(sent, "\n")
	if strings.Contains(first, "map") {
		o.MapThrottle = true
	}
	if strings.Contains(first, "token") {
		o.Admit = func(token string) bool { return token == "let-me-in" }
	}
	return o
}

// unquoted returns the bytes that a case sends: lines that begin with # are
// left out.
func unquoted(t *testing.T, sent string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(sent, "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		text, err := strconv.Unquote(`"` + strings.ReplaceAll(line, `"`, `\"`) + `"`)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		b.WriteString(text)
		b.WriteString("\r\n")
	}
	return b.String()
}

func quoted(got string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(got, "\r\n"), "\r\n") {
		q := strconv.Quote(line)
		b.WriteString(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`))
		b.WriteByte('\n')
	}
	return strings.TrimSuffix(b.String(), "\n")
}
