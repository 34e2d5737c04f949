package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	main "github.com/stint-dev/stint/release"
)

// A listed package is what go list says of one.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
}

// A checker checks the types of packages for one system, in the order of go list
// -deps, and is where they find what they import.
type checker struct {
	fset    *token.FileSet
	sizes   types.Sizes
	checked map[string]*types.Package
	names   map[string]string // of imports in the package at hand that have others
}

// Import returns a package that was checked.
func (c *checker) Import(path string) (*types.Package, error) {
	if name, ok := c.names[path]; ok {
		path = name
	}
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if p := c.checked[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s is not among the packages", path)
}

// check checks one package: all of it if it is of stint, else what it exports.
func (c *checker) check(p *listed) (wrong []error) {
	ours := strings.HasPrefix(p.ImportPath, "github.com/stint-dev/stint")
	var files []*ast.File
	for _, name := range p.GoFiles {
		if !filepath.IsAbs(name) { // as generated files are
			name = filepath.Join(p.Dir, name)
		}
		file, err := parser.ParseFile(c.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return []error{err}
		}
		files = append(files, file)
	}
	c.names = p.ImportMap
	config := types.Config{Importer: c, Sizes: c.sizes, IgnoreFuncBodies: !ours, Error: func(err error) {
		if ours {
			wrong = append(wrong, err)
		}
	}}
	c.checked[p.ImportPath], _ = config.Check(p.ImportPath, c.fset, files, nil) // errors are those above
	return wrong
}

// TestTargets checks the types of the command for every system of a release and for
// one of 32 bits, as its compiler would: seconds, where make cross takes minutes to
// compile.
func TestTargets(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads the source of all that the command imports")
	}
	for _, target := range append(main.Targets(), "linux_386") {
		t.Run(target, func(t *testing.T) {
			system, arch, _ := strings.Cut(target, "_")
			list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags=grpcnotrace", "-json=ImportPath,Dir,GoFiles,ImportMap", "./stint")
			list.Dir, list.Stderr = "../cmd", os.Stderr
			list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
			out, err := list.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := list.Start(); err != nil {
				t.Fatal(err)
			}
			c := &checker{fset: token.NewFileSet(), sizes: types.SizesFor("gc", arch), checked: make(map[string]*types.Package)}
			for d := json.NewDecoder(out); ; {
				var p listed
				if err := d.Decode(&p); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				for _, wrong := range c.check(&p) {
					t.Error(wrong)
				}
			}
			if err := list.Wait(); err != nil || len(c.checked) < 300 {
				t.Errorf("%d packages, %v", len(c.checked), err)
			}
		})
	}
}
