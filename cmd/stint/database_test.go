package main_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"
)

// steady replaces times, identities and tokens.
type steady struct{}

var unsteady = regexp.MustCompile(`\d{4}-\d\d-\d\d(T|\s+)\d\d:\d\d:\d\d(\.\d+)?Z|\b[A-Z2-7]{26}\b`)

func (steady) Replace(text string) string {
	return unsteady.ReplaceAllStringFunc(text, func(s string) string {
		if len(s) == 26 && s[4] != '-' {
			return "RANDOM"
		}
		return "TIME"
	})
}

// TestDatabase runs the commands that change rules in a database, in a directory
// of their own.
func TestDatabase(t *testing.T) {
	dir, err := filepath.Abs("testdata/database")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, name := range []string{"one.yaml", "two.yaml", "bad.yaml", "tiers.yaml", "customers.csv"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(name, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("STINT_RULES", "sqlite:stint.db")
	transcript(t, filepath.Join(dir, "commands.txt"), steady{})
}

// TestDatabaseJSON has the fields that programs read.
func TestDatabaseJSON(t *testing.T) {
	rules, err := filepath.Abs("testdata/database/one.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for range 3 {
		if got := (session{args: []string{"rules", "push", rules, "--rules", "sqlite:a.db", "--author", "anna", "--comment", "why", "--json"}}).run(); got[0] != '{' {
			t.Fatal(got)
		}
	}
	var log []struct {
		Version            int64
		Author, At, Hash   string
		Comment            string
		Document, Identity *string
	}
	got := session{args: []string{"rules", "log", "--rules", "sqlite:a.db", "--json"}}.run()
	if err := json.Unmarshal([]byte(got), &log); err != nil || len(log) != 3 {
		t.Fatalf("%v: %s", err, got)
	}
	if one := log[0]; one.Version != 3 || one.Author != "anna" || one.Comment != "why" || len(one.Hash) != 64 || one.At == "" || one.Document != nil {
		t.Errorf("%+v", one)
	}
}

// TestCopyFile has no home directory, as a service may: the log says that no copy of the
// rules is kept, unless none is wanted.
func TestCopyFile(t *testing.T) {
	for _, test := range []struct {
		rules, flag, home string
		kept, warns       bool
	}{
		{"postgres://db/stint", "", "/home/anna", true, false},
		{"postgres://db/stint", "", "", false, true},
		{"postgres://db/stint", "none", "", false, false},
		{"postgres://db/stint", "/var/lib/stint/rules", "", true, false},
		{"sqlite:stint.db", "", "", false, false},
	} {
		for _, name := range []string{"HOME", "XDG_CACHE_HOME", "LocalAppData"} {
			t.Setenv(name, test.home)
		}
		var log strings.Builder
		file := main.CopyFile(test.rules, test.flag, slog.New(slog.NewTextHandler(&log, nil)))
		if kept, warns := file != "", strings.Contains(log.String(), "--rules-copy FILE"); kept != test.kept || warns != test.warns {
			t.Errorf("%+v: kept in %q, log %s", test, file, &log)
		}
	}
}
