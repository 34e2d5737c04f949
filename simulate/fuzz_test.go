package simulate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stint-dev/stint/simulate"
)

// FuzzLines holds that no input panics, that every line that is read is JSON,
// that there is one answer, itself JSON, for each line before a bad one, and that
// the same lines give the same answers. The seeds are under testdata/fuzz.
func FuzzLines(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Count(text, "sliding_buckets") > 20 || len(text) > 1<<12 {
			t.Skip("slow, and no more than more of the same")
		}
		limits := []string{"5/s burst 7", "9/1m sliding_log", "6/10s sliding_counter count_denied"}
		out, err := run(t, limits, text)
		again, err2 := run(t, limits, text)
		if out != again || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Errorf("%s%v\nand then\n%s%v", out, err, again, err2)
		}
		lines := strings.Split(text, "\n")
		answers := 0
		for i, line := range lines {
			blank := strings.TrimSpace(line) == ""
			if _, err := simulate.ParseOp([]byte(line)); err != nil {
				continue
			}
			if blank || !json.Valid([]byte(line)) {
				t.Errorf("line %d is read and is no JSON: %q", i+1, line)
			}
			answers++
		}
		got := bytes.Split([]byte(strings.TrimSuffix(out, "\n")), []byte("\n"))
		if out == "" {
			got = nil
		}
		if len(got) > answers || err == nil && len(got) != answers {
			t.Errorf("%d answers to %d lines; %v", len(got), answers, err)
		}
		for _, line := range got {
			if !json.Valid(line) {
				t.Errorf("an answer that is no JSON: %q", line)
			}
		}
	})
}
