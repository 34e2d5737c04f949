package main_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"

	main "github.com/stint-dev/stint/release"
)

// TestRelease builds a release twice, compares the two, and looks into each file.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the command")
	}
	if runtime.GOOS != "linux" {
		t.Skip("packages and images are for Linux")
	}
	first, second := t.TempDir(), t.TempDir()
	for _, out := range []string{first, second} {
		if err := main.Release(t.Context(), out); err != nil {
			t.Fatal(err)
		}
	}
	sums := read(t, first, "SHA256SUMS")
	if again := read(t, second, "SHA256SUMS"); !bytes.Equal(sums, again) {
		t.Errorf("the second release is another:\n%s\n%s", sums, again)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = first
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	base := "stint_1.2.3_linux_" + runtime.GOARCH
	t.Run("archive", func(t *testing.T) { archive(t, filepath.Join(first, base+".tar.gz"), base) })
	t.Run("bill", func(t *testing.T) { bill(t, read(t, first, base+".spdx.json")) })
	t.Run("provenance", func(t *testing.T) { provenance(t, read(t, first, "stint_1.2.3.provenance.json"), sums) })
	t.Run("package", func(t *testing.T) { debian(t, filepath.Join(first, "stint_1.2.3_"+runtime.GOARCH+".deb")) })
	t.Run("image", func(t *testing.T) { image(t, filepath.Join(first, base+".image.tar")) })
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestSmall looks for what makes the linker keep every method of every type,
// since it finds methods by name while the program runs: it costs 15 MB.
func TestSmall(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-tags=grpcnotrace", "./stint")
	list.Dir = "../cmd"
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		switch name {
		case "text/template", "html/template", "github.com/alecthomas/kong", "golang.org/x/net/trace", "net/rpc":
			t.Errorf("the command imports %s", name)
		}
	}
}

// TestAdapters looks that each adapter requires the root module: here go.work finds
// it, and who gets the adapter alone would not.
func TestAdapters(t *testing.T) {
	files, err := filepath.Glob("../adapters/*/go.mod")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d modules, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte("github.com/stint-dev/stint v0.1.0\n")) {
			t.Errorf("%s does not require the root module (%v)", file, err)
		}
	}
}

// archive runs the program that is in it, and looks for what goes with it.
func archive(t *testing.T, path, base string) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string][]byte)
	for r := tar.NewReader(zip); ; {
		head, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if found[head.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"LICENSE": "Apache License", "THIRD-PARTY-NOTICES.txt": "google.golang.org/grpc v", "SECURITY.md": "stint",
		"man/stint-serve.1": ".TH STINT", "completion/stint.bash": "complete-word", "completion/stint.zsh": "#compdef stint",
		"completion/stint.fish": "complete -c stint", "systemd/stint.service": "ExecStart=/usr/bin/stint serve",
	} {
		if !strings.Contains(string(found[base+"/"+name]), want) {
			t.Errorf("%s has no %q", name, want)
		}
	}
	program := filepath.Join(t.TempDir(), "stint")
	if err := os.WriteFile(program, found[base+"/stint"], 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "--version").Output()
	if err != nil || !strings.HasPrefix(string(out), "stint v1.2.3") {
		t.Errorf("%s, %v", out, err)
	}
	if size := len(found[base+"/stint"]); size > 30e6 {
		t.Errorf("the program has %.2f MB, 30 are allowed: make size says what takes the room", float64(size)/1e6)
	}
	if here, err := filepath.Abs(".."); err != nil || bytes.Contains(found[base+"/stint"], []byte(here+"/")) {
		t.Errorf("the program names %s, where it was built", here)
	}
}

// bill holds the document to what SPDX 2.3 requires of one.
func bill(t *testing.T, text []byte) {
	var d struct {
		SPDXVersion, DataLicense, SPDXID, Name, DocumentNamespace string
		CreationInfo                                              struct{ Created string }
		Packages                                                  []struct{ SPDXID, Name, VersionInfo, LicenseDeclared string }
		Relationships                                             []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string }
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.SPDXVersion != "SPDX-2.3" || d.DataLicense != "CC0-1.0" || d.SPDXID != "SPDXRef-DOCUMENT" || d.DocumentNamespace == "" || len(d.Packages) < 20 {
		t.Errorf("%s, %s, %s, %d packages", d.SPDXVersion, d.DataLicense, d.SPDXID, len(d.Packages))
	}
	ids := map[string]bool{d.SPDXID: true}
	for _, p := range d.Packages {
		if ids[p.SPDXID] || !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(p.SPDXID) || p.VersionInfo == "" || p.LicenseDeclared == "" {
			t.Errorf("%+v", p)
		}
		ids[p.SPDXID] = true
	}
	for _, r := range d.Relationships {
		if !ids[r.SPDXElementID] || !ids[r.RelatedSPDXElement] {
			t.Errorf("%+v", r)
		}
	}
}

// provenance holds the statement to what in-toto and SLSA ask of one, and to the sums
// and the module cache: whoever has the files can check it.
func provenance(t *testing.T, text, sums []byte) {
	type descriptor struct {
		Name, URI string
		Digest    map[string]string
	}
	var s struct {
		Type          string `json:"_type"`
		Subject       []descriptor
		PredicateType string
		Predicate     struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   struct{ Version string }
				ResolvedDependencies []descriptor
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	d := s.Predicate.BuildDefinition
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" || d.BuildType == "" ||
		d.ExternalParameters.Version != "v1.2.3" || s.Predicate.RunDetails.Builder.ID == "" {
		t.Errorf("%.600s", text)
	}
	if len(s.Subject) != bytes.Count(sums, []byte("\n"))-1 { // all but the statement itself
		t.Errorf("%d files, of\n%s", len(s.Subject), sums)
	}
	for _, f := range s.Subject {
		if !bytes.Contains(sums, []byte(f.Digest["sha256"]+"  "+f.Name+"\n")) {
			t.Errorf("%s is not among\n%s", f, sums)
		}
	}
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil || len(d.ResolvedDependencies) < 20 || d.ResolvedDependencies[0].Digest["gitCommit"] != strings.TrimSpace(string(head)) {
		t.Fatalf("made of %+v at %s (%v)", d.ResolvedDependencies, head, err)
	}
	known := checksums(t)
	for _, m := range d.ResolvedDependencies[1:] {
		path, version, _ := strings.Cut(strings.TrimPrefix(m.URI, "pkg:golang/"), "@")
		sum, err := hex.DecodeString(m.Digest["dirHash"])
		if line := path + " " + version + " h1:" + base64.StdEncoding.EncodeToString(sum) + "\n"; path != "std" && (err != nil || !bytes.Contains(known, []byte(line))) {
			t.Errorf("%s: go.sum has no line %s", m, line)
		}
	}
}

// checksums returns the checksum files of the repository: go.work may choose a version
// that another module than that of the command asks for.
func checksums(t *testing.T) (all []byte) {
	t.Helper()
	for _, pattern := range []string{"../go.work.sum", "../*/go.sum", "../*/*/go.sum"} {
		files, err := filepath.Glob(pattern)
		if err != nil || files == nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, text...)
		}
	}
	return all
}

// debian asks dpkg-deb what is in the package.
func debian(t *testing.T, path string) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip(err)
	}
	head, err := exec.Command("dpkg-deb", "--info", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command("dpkg-deb", "--contents", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Package: stint", "Version: 1.2.3", "Architecture: " + runtime.GOARCH, "conffiles"} {
		if !strings.Contains(string(head), want) {
			t.Errorf("no %q in\n%s", want, head)
		}
	}
	for _, want := range []string{"./usr/bin/stint\n", "./usr/lib/systemd/system/stint.service\n", "./etc/stint/stint.yaml\n", "./usr/share/man/man1/stint-serve.1.gz\n", "./usr/share/doc/stint/copyright\n", "./usr/share/bash-completion/completions/stint\n"} {
		if !strings.Contains(string(list), want) {
			t.Errorf("no %q in\n%s", want, list)
		}
	}
}

// image reads the image as docker load would: the program and the roots of TLS,
// a user that is not root, no shell.
func image(t *testing.T, path string) {
	image, err := tarball.ImageFromPath(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if config.OS != "linux" || config.Architecture != runtime.GOARCH || c.User != "65532:65532" || len(c.Entrypoint) != 1 || c.Entrypoint[0] != "/stint" || c.Healthcheck.Test[1] != "/stint" {
		t.Errorf("%+v", config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(len(layers), err)
	}
	text, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	for r := tar.NewReader(text); ; {
		head, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch head.Name {
		case "stint", "etc/", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt":
		default:
			t.Errorf("%s is in the image", head.Name)
		}
	}
}

// TestUnit lets systemd judge the unit: below 2 of 10. What operators do is kept in
// the one directory that it may write.
func TestUnit(t *testing.T) {
	unit, err := os.ReadFile("systemd/stint.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nStateDirectory=stint\n", "\nEnvironment=STINT_STATE=%S/stint/"} {
		if !bytes.Contains(unit, []byte(want)) {
			t.Errorf("no %q in the unit", want)
		}
	}
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(tool, "security", "--offline=true", "--no-pager", "systemd/stint.service").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m := regexp.MustCompile(`exposure level for stint\.service: ([0-9.]+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("%s", out)
	}
	if level, err := strconv.ParseFloat(string(m[1]), 64); err != nil || level >= 2 {
		t.Errorf("exposure %s, want below 2\n%s", m[1], out)
	}
}

// TestLicenceOf tells the licences that Go modules have by their first words.
func TestLicenceOf(t *testing.T) {
	for text, want := range map[string]string{
		"Apache License\n   Version 2.0, January 2004":                            "Apache-2.0",
		"Permission is hereby granted, free of charge":                            "MIT",
		"Redistribution and use in source and binary forms … Neither the name of": "BSD-3-Clause",
		"Redistribution and use in source and binary forms, with or without":      "BSD-2-Clause",
		"GNU AFFERO GENERAL PUBLIC LICENSE":                                       "GPL",
		"Mozilla Public License Version 2.0":                                      "MPL-2.0",
		"all rights reserved":                                                     "",
	} {
		if got := main.LicenceOf(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
