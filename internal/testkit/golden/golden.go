// Package golden compares what tests get with the files of their testdata.
package golden

import (
	"flag"
	"os"
	"strings"
	"testing"
)

// Update says that what comes now is written into testdata (go test -update): look at the
// difference before you commit it.
var Update = flag.Bool("update", false, "write what comes now into testdata")

// Equal compares a text with that of a file.
func Equal(t testing.TB, file, got string) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != got {
		t.Errorf("%s is not what comes now, %v\ngot:\n%s\nwant:\n%s", file, err, got, want)
	}
}

// Play compares the answers of a transcript: cases with between in between, each a question,
// a line "----", and its answer.
func Play(t testing.TB, file, between string, answer func(question string) string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cases := strings.Split(strings.TrimSuffix(string(text), "\n"), between)
	for i, c := range cases {
		question, want, ok := strings.Cut(c, "\n----")
		if !ok {
			t.Fatalf("%s: case %d has no ----", file, i+1)
		}
		got := answer(question)
		if *Update {
			cases[i] = question + "\n----\n" + got
		} else if strings.TrimPrefix(want, "\n") != got {
			t.Errorf("%s\ngot:\n%s\nwant:%s", question, got, want)
		}
	}
	if *Update {
		Equal(t, file, strings.Join(cases, between)+"\n")
	}
}
