package stint_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
)

const module = "github.com/stint-dev/stint"

// layers are the rooms of the repository, from the ground up: a package imports
// those of its own row and of the rows above it in this list. The longest
// prefix counts. docs/DESIGN.md describes the rooms.
var layers = []string{
	"internal", // arithmetic, words, conditions
	"meter",    // the arithmetic of limits
	"inflight", // what runs at one moment
	".",        // limits, the interface of a store, waiting
	"internal/layercheck internal/ratefields internal/guard rulesource", // what stores share; what guards share; the interface of what keeps rules
	"memstore",
	"fallback",
	"redisstore rulesdb",
	"policy",
	"simulate storetest internal/testkit/made", // what tries limits, rules and stores
	"httplimit",
	"grpclimit",
	"adapters",
	"service",
	"planner", // reads the service's rules
	"cmd/stint",
	"deploy examples test",
}

// apart are rooms whose independence is worth more than a shared line.
var apart = map[string]string{
	"meter":            "internal/satmath internal/uint128 internal/wording", // a store's author takes it alone
	"test/proof/model": "",                                                   // a model that shares code with the engine shares its faults
}

// layer returns the row of a package's room, and the room.
func layer(dir string) (row int, room string) {
	row = -1
	for i, rooms := range layers {
		for r := range strings.FieldsSeq(rooms) {
			if (dir == r || strings.HasPrefix(dir, r+"/")) && len(r) > len(room) {
				row, room = i, r
			}
		}
	}
	return row, room
}

// TestLayers checks that imports point down, and that the root module, its tests
// included, imports the standard library alone.
func TestLayers(t *testing.T) {
	eachFile(t, func(file string, f *ast.File, _ *token.FileSet) {
		dir := path.Dir(file)
		row, room := layer(dir)
		if row < 0 {
			t.Errorf("%s: %s is in no row of layers", file, dir)
			return
		}
		for _, spec := range f.Imports {
			p, _ := strconv.Unquote(spec.Path.Value)
			below, ours := strings.CutPrefix(p, module)
			below = path.Clean("./" + below)
			allowed, isApart := apart[dir]
			theirs, _ := layer(below)
			switch {
			case !ours:
				if strings.Contains(strings.Split(p, "/")[0], ".") && inRoot(dir) {
					t.Errorf("%s: imports %s: the root module has the standard library alone", file, p)
				}
			case strings.HasSuffix(file, "_test.go") || below == dir:
			case isApart && !slices.Contains(strings.Fields(allowed), below):
				t.Errorf("%s: imports %s: %s imports %q alone", file, below, dir, allowed)
			case theirs > row:
				t.Errorf("%s: imports %s, which stands above %s", file, below, room)
			}
		}
	})
}

// inRoot says whether a directory belongs to the root module.
func inRoot(dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return false
		}
	}
	return true
}

// TestLayersModule holds the go.mod of the root to requiring nothing.
func TestLayersModule(t *testing.T) {
	text := disk.Read(t, "go.mod")
	if want := fmt.Sprintf("module %s\n\ngo 1.25\n", module); string(text) != want {
		t.Errorf("go.mod is\n%s\nwant\n%s", text, want)
	}
}

// eachFile calls do with every Go file of the repository. In a module cache, the
// modules below the root are not there.
func eachFile(t *testing.T, do func(file string, f *ast.File, set *token.FileSet)) {
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || p != "." && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, ".go"):
			return nil
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err == nil {
			do(filepath.ToSlash(p), f, set)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// mostLines is how long a function may be: a longer one does more than one thing.
const mostLines = 70

func TestLayersFunctions(t *testing.T) {
	eachFile(t, func(file string, f *ast.File, set *token.FileSet) {
		if strings.HasSuffix(file, "_test.go") || ast.IsGenerated(f) {
			return
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1; n > mostLines {
				t.Errorf("%s: %s has %d lines: at most %d", set.Position(fn.Pos()), fn.Name.Name, n, mostLines)
			}
		}
	})
}
