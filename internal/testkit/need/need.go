// Package need finds the programs that tests run against. A test whose program is
// missing is skipped, in words that `make test` counts in its last lines and that
// `make test-all` takes for a failure; so is one that takes longer than there is time.
package need

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Program returns the path of a program, and skips the test where the machine does
// not have it.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, found := Find(name)
	if !found {
		Missing(t, name)
	}
	return path
}

// Missing skips a test that runs against what the machine does not have.
func Missing(t testing.TB, what string) {
	t.Helper()
	t.Skip("missing: " + what)
}

// Package returns the directory of a package of npm, of those that .ci/needs put
// into bin/node below root, and skips the test where it is missing: .ci/needs only
// tries to install these.
func Package(t testing.TB, root, name string) string {
	t.Helper()
	dir := filepath.Join(root, "bin/node/node_modules", name)
	if _, err := os.Stat(dir); err != nil {
		Optional(t, "npm package "+name)
	}
	return dir
}

// Optional is [Missing] for what .ci/needs only tries to install: that it is missing
// fails nothing.
func Optional(t testing.TB, what string) {
	t.Helper()
	t.Skip("missing, optional: " + what)
}

// Find returns the path of a program that may be where the paths of most users do
// not lead: among those of the system, or of a version of PostgreSQL.
func Find(name string) (path string, found bool) {
	places, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for _, dir := range append(places, "", "/usr/sbin") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, true
		}
	}
	return "", false
}

// Time skips a test that takes seconds where only short ones are wanted.
func Time(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow")
	}
}
