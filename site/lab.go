package main

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ours are the files of the lab's page that differ where there is no server: the
// engine is WebAssembly, in a worker.
//
//go:embed lab
var ours embed.FS

// labPolicy is what the page of the lab may load.
const labPolicy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'">`

// lab makes the lab in a directory: the page of stint lab, with the engine beside
// it.
func lab(root, out string) error {
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.CopyFS(out, os.DirFS(filepath.Join(root, "cmd/internal/planner/lab/page"))); err != nil {
		return err
	}
	for _, name := range []string{"api.js", "worker.js"} {
		text, err := ours.ReadFile("lab/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
	}
	if err := labPage(filepath.Join(out, "index.html")); err != nil {
		return err
	}
	return engine(root, out)
}

// labPage changes what the page says of the server, which is not there.
func labPage(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	page := string(text)
	for _, change := range [][2]string{
		{`<meta charset="utf-8">`, `<meta charset="utf-8">` + "\n" + labPolicy},
		{`<button type="button" id="open-log"`, `<a href="../index.html">Documents</a>` + "\n  " + `<button type="button" id="open-log"`},
		{"it asks the lab on this machine and draws what it answers", "the engine runs in it, and it draws what that answers"},
	} {
		if strings.Count(page, change[0]) != 1 {
			return fmt.Errorf("%s: want %q once", path, change[0])
		}
		page = strings.Replace(page, change[0], change[1], 1)
	}
	return os.WriteFile(path, []byte(page), 0o644)
}

// engine builds the simulator as WebAssembly, packed, and copies what Go has a
// browser run it by.
func engine(root, out string) error {
	plain := filepath.Join(out, "lab.wasm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", plain, "./internal/planner/lab/wasm")
	build.Dir = filepath.Join(root, "cmd")
	build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOFLAGS=")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the engine: %w\n%s", err, said)
	}
	text, err := os.ReadFile(plain)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := zip.Write(text); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "lab.bin"), packed.Bytes(), 0o644); err != nil {
		return err
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	glue, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(goroot)), "lib", "wasm", "wasm_exec.js"))
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(out, "wasm_exec.js"), glue, 0o644), os.Remove(plain))
}
