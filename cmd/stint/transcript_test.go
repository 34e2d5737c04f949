package main_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/internal/testkit/leaktest"
)

// TestMain runs the tests, or, in a child process of theirs, the program.
func TestMain(m *testing.M) {
	if os.Getenv("STINT_TEST_MAIN") != "" {
		os.Unsetenv("STINT_TEST_MAIN")        // no flag reads it, of which a server warns
		if os.Getenv("STINT_MAX_LAG") == "" { // a busy machine may take a second to read a request
			os.Setenv("STINT_MAX_LAG", "0s")
		}
		os.Exit(main.Run(context.Background(), main.Arguments(os.Args), os.Stdin, os.Stdout, os.Stderr))
	}
	leaktest.Main(m, goleak.Find)
}

// A session is one command of a transcript, and what must come back:
//
//	# why
//	$ stint simulate --limit 5/s
//	< {"t":"0s","key":"a"}
//	----
//	{"t":"0s", …
//	stderr: …
//	exit 1
type session struct {
	head   []string // the lines up to ----
	args   []string
	in     string
	answer string
}

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { transcript(t, file, narrow(t, session.run)) })
	}
}

// transcript runs the sessions of a file, each as run does.
func transcript(t *testing.T, file string, run func(session) string) {
	text := disk.Read(t, file)
	var now strings.Builder
	for i, s := range parseTranscript(t, string(text)) {
		got := run(s)
		if !*golden.Update && got != s.answer {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", strings.Join(s.head, "\n"), got, s.answer)
		}
		if i > 0 {
			now.WriteByte('\n')
		}
		fmt.Fprintf(&now, "%s\n----\n%s", strings.Join(s.head, "\n"), got)
	}
	if *golden.Update {
		golden.Equal(t, file, now.String())
	}
}

// narrow holds what is run to 80 columns, but for JSON and errors.
func narrow(t *testing.T, run func(session) string) func(session) string {
	return func(s session) string {
		got := run(s)
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 && !strings.HasPrefix(line, "{") && !strings.HasPrefix(line, "[") && !strings.HasPrefix(line, "stderr: ") {
				t.Errorf("%s\nline of %d columns: %s", strings.Join(s.head, "\n"), n, line)
			}
		}
		return got
	}
}

// parseTranscript cuts a transcript into its sessions. One begins at a comment
// or a command that stands behind an empty line.
func parseTranscript(t *testing.T, text string) []session {
	t.Helper()
	var all []session
	inHead, blank := false, true
	for line := range strings.Lines(text) {
		bare := strings.TrimSuffix(line, "\n")
		begins := strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "$ ")
		if begins && blank && !inHead {
			all, inHead = append(all, session{}), true
		}
		if len(all) == 0 {
			t.Fatalf("%q before any command", bare)
		}
		s := &all[len(all)-1]
		switch {
		case inHead && bare == "----":
			inHead = false
		case inHead:
			s.head = append(s.head, bare)
			if command, ok := strings.CutPrefix(bare, "$ stint"); ok {
				s.args = split(t, command)
			}
			if in, ok := strings.CutPrefix(line, "< "); ok {
				s.in += in
			}
		default:
			s.answer += line
		}
		blank = bare == ""
	}
	for i := range all[:len(all)-1] {
		all[i].answer = strings.TrimSuffix(all[i].answer, "\n") // the empty line between
	}
	return all
}

// split cuts a command line as a shell does, single quotes included.
func split(t *testing.T, command string) (args []string) {
	t.Helper()
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	if strings.Count(command, "'")%2 != 0 {
		t.Fatalf("open quote: %s", command)
	}
	return args
}

func (s session) run() string {
	var out, errs bytes.Buffer
	status := main.Run(context.Background(), s.args, strings.NewReader(s.in), &out, &errs)
	for line := range strings.Lines(errs.String()) {
		out.WriteString("stderr: " + line)
	}
	if status != 0 {
		fmt.Fprintf(&out, "exit %d\n", status)
	}
	return out.String()
}
