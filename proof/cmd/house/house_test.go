package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRooms holds the picture of docs/DESIGN.md to the imports of the code.
func TestRooms(t *testing.T) {
	top := filepath.Join("..", "..", "..")
	rooms, err := readRooms(top)
	if err != nil {
		t.Fatal(err)
	}
	var now bytes.Buffer
	if err := drawRooms(&now, rooms); err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(filepath.Join(top, "docs", "rooms.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(drawn, now.Bytes()) {
		t.Error("docs/rooms.svg is not what the code imports: make docs draws it anew")
	}
	for name, r := range rooms {
		for _, i := range r.imports {
			if rooms[i].floor >= r.floor {
				t.Errorf("%s imports %s, which stands no lower", name, i)
			}
		}
	}
}

// TestReaders holds the picture of docs/RULES-DB.md to what the document has users
// of the database granted, which package rulesdb tests on a server.
func TestReaders(t *testing.T) {
	top := filepath.Join("..", "..", "..")
	grants, err := readGrants(top)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ user, may, tables string }{
		{"stint_node", "SELECT", "marks, nodes, overrides, plans, revisions, state, tokens"}, {"stint_node", "INSERT", "nodes"}, {"stint_worker", "INSERT", "audit, leases"},
	} {
		if got := tables(grants, want.user, want.may); got != want.tables {
			t.Errorf("%s may %s %s, want %s", want.user, want.may, got, want.tables)
		}
	}
	var now bytes.Buffer
	if err := drawReaders(&now, grants); err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(filepath.Join(top, "docs", "readers.svg"))
	if err != nil || !bytes.Equal(drawn, now.Bytes()) {
		t.Errorf("docs/readers.svg is not what docs/RULES-DB.md says: make docs draws it anew (%v)", err)
	}
}

func TestCodeLines(t *testing.T) {
	src := "// Package p.\npackage p\n\nvar a = `one\ntwo` // and more\n\n/* not\nthis */\nfunc f() {\n\n}\n"
	file := filepath.Join(t.TempDir(), "p.go")
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := codeLines(file); err != nil || n != 5 {
		t.Errorf("%d lines, %v; want 5:\n%s", n, err, strings.TrimSpace(src))
	}
}

func TestFunctionsAt(t *testing.T) {
	src := "package p\n\nvar a = func() int {\n\treturn 1\n}\n\nfunc f() {\n\ta()\n}\n\nfunc (t T) g() {\n}\n"
	file := filepath.Join(t.TempDir(), "p.go")
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	if names, err := functionsAt(file, []int{4, 11}); err != nil || strings.Join(names, " ") != "var g" {
		t.Errorf("%v, %v; want var and g", names, err)
	}
}
