package rules_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"

	"github.com/stint-dev/stint/service/rules"
)

// FuzzDecode looks for panics, for files that are accepted and then cannot be
// used, and for errors without a reason or with a place that is not there.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"testdata/busted/*[nl]", "testdata/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil && len(data) < 5_000 {
				f.Add(data)
			}
		}
	}
	attrs := policy.Map{"method": "POST", "path": "/login", "ip": "192.0.2.7", "host": "a.example.com", "header.x-api-key": "partner-1"}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"rules.yaml", "rules.json", "-"} {
			file, err := rules.Decode(name, data)
			if err != nil {
				errs, ok := errors.AsType[rulesfile.Errors](err)
				if !ok || len(errs) == 0 || !utf8.ValidString(err.Error()) {
					t.Fatalf("%s: %T: %q", name, err, err)
				}
				for _, e := range errs {
					if e.Reason == "" || e.Line < 0 || e.Line > len(data)+2 || e.Column > len(data)+2 || (e.Line == 0) != (e.Column == 0) {
						t.Fatalf("%s: %+v", name, e)
					}
				}
				continue
			}
			if changes := file.Rules.Compare(file.Rules); len(changes) > 0 {
				t.Fatalf("%s: a change without a change: %v", name, changes)
			}
			if _, err := file.Rules.Explain(attrs); err != nil && !errors.Is(err, policy.ErrRequest) {
				t.Fatalf("%s: %v", name, err)
			}
		}
	})
}
