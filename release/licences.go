package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A module is one that a binary has code of.
type module struct {
	Path, Version, Dir string
	sum                string // of its files, as go.sum has it
	licence            string // its name in SPDX
	texts              []string
}

// allowed are the licences that a dependency may have. MPL-2.0 asks that the
// source of its own files can be had: they are used as they are published.
var allowed = map[string]bool{
	"Apache-2.0": true, "MIT": true, "BSD-2-Clause": true, "BSD-3-Clause": true, "ISC": true, "MPL-2.0": true,
}

// readModules returns the modules that a binary says it is made of, with Go's own
// library first. Those of stint itself are left out.
func readModules(ctx context.Context, root, binary string) ([]module, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	list, err := command(ctx, filepath.Join(root, "cmd"), nil, "go", "list", "-m", "-json", "all")
	if err != nil {
		return nil, err
	}
	where := make(map[string]string)
	for d := json.NewDecoder(strings.NewReader(list)); ; {
		var m module
		if err := d.Decode(&m); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		where[m.Path] = m.Dir
	}
	goroot, err := command(ctx, root, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	all := []module{{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go"), Dir: goroot}}
	for _, d := range info.Deps {
		if d.Path != stint && !strings.HasPrefix(d.Path, stint+"/") {
			all = append(all, module{Path: d.Path, Version: d.Version, Dir: where[d.Path], sum: d.Sum})
		}
	}
	for i := range all {
		if err := all[i].read(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

const stint = "github.com/stint-dev/stint"

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)([.-].*)?$`)

// purl names the module as other tools do.
func (m *module) purl() string { return "pkg:golang/" + m.Path + "@" + m.Version }

// read finds the texts that must go with a module's code, and what licence the
// first is.
func (m *module) read() error {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.Dir, e.Name()))
		if err != nil {
			return err
		}
		m.texts = append(m.texts, string(text))
		if m.licence == "" {
			m.licence = licenceOf(string(text))
		}
	}
	if !allowed[m.licence] {
		return fmt.Errorf("%s@%s: licence %q: not one of those that dependencies may have", m.Path, m.Version, m.licence)
	}
	return nil
}

// licenceOf recognises a licence by its words.
func licenceOf(text string) string {
	text = strings.Join(strings.Fields(strings.ToLower(text)), " ")
	has := func(words string) bool { return strings.Contains(text, words) }
	switch {
	case has("apache license version 2.0"), has("apache license, version 2.0"):
		return "Apache-2.0"
	case has("mozilla public license"):
		return "MPL-2.0"
	case has("gnu "):
		return "GPL"
	case has("permission to use, copy, modify, and/or distribute"), has("permission to use, copy, modify, and distribute this software for any purpose"):
		return "ISC"
	case has("permission is hereby granted, free of charge"):
		return "MIT"
	case has("redistribution and use in source and binary forms") && (has("neither the name") || has("names of its contributors") || has("endorse or promote")):
		return "BSD-3-Clause"
	case has("redistribution and use in source and binary forms"):
		return "BSD-2-Clause"
	}
	return ""
}

// notices returns the licences and notices of all modules in one text.
func notices(modules []module) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("The program stint has code of these modules, under these licences.\n")
	for _, m := range modules {
		fmt.Fprintf(&b, "\n%s\n%s %s (%s)\n%s\n", strings.Repeat("=", 72), m.Path, m.Version, m.licence, strings.Repeat("=", 72))
		for _, text := range m.texts {
			b.WriteString("\n" + strings.TrimSpace(text) + "\n")
		}
	}
	return b.Bytes(), nil
}
