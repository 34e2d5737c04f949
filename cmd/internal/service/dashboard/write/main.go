// Command write writes the files of package dashboard into two directories.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/stint-dev/stint/cmd/internal/service/dashboard"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: write DEPLOY DOCS")
		os.Exit(2)
	}
	files, err := dashboard.Files(os.Args[1], os.Args[2])
	for path, text := range files {
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
