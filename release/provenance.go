package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// The parts of an in-toto statement with SLSA's provenance that a release has.
type statement struct {
	Type          string       `json:"_type"`
	Subject       []descriptor `json:"subject"`
	PredicateType string       `json:"predicateType"`
	Predicate     provenance   `json:"predicate"`
}

type provenance struct {
	Definition definition `json:"buildDefinition"`
	Run        runDetails `json:"runDetails"`
}

type definition struct {
	BuildType    string         `json:"buildType"`
	External     map[string]any `json:"externalParameters"`
	Internal     map[string]any `json:"internalParameters"`
	Dependencies []descriptor   `json:"resolvedDependencies"`
}

type runDetails struct {
	Builder struct {
		ID string `json:"id"`
	} `json:"builder"`
}

// A descriptor is a file, a commit or a module, with its digest.
type descriptor struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest,omitempty"`
	Annotations map[string]any    `json:"annotations,omitempty"`
}

// An origin is what a checkout was when this process first looked, so that its
// releases are alike.
type origin struct {
	once    sync.Once
	commit  string
	changed bool
	err     error
}

var checkout origin

// origin returns the commit that is checked out, and whether that is not all there is.
func (r *release) origin(ctx context.Context) (commit string, changed bool, err error) {
	checkout.once.Do(func() {
		if checkout.commit, checkout.err = command(ctx, r.root, nil, "git", "rev-parse", "HEAD"); checkout.err != nil {
			return
		}
		var status string
		status, checkout.err = command(ctx, r.root, nil, "git", "status", "--porcelain")
		checkout.changed = status != ""
	})
	return checkout.commit, checkout.changed, checkout.err
}

// provenance writes what the files of the release were made of, and how. It is not
// signed: who signs it vouches for it.
func (r *release) provenance(ctx context.Context, systems []string) error {
	commit, changed, err := r.origin(ctx)
	if err != nil {
		return err
	}
	source := descriptor{URI: "git+https://" + stint + "@" + commit, Digest: map[string]string{"gitCommit": commit}}
	if changed {
		source.Annotations = map[string]any{"modified": true} // the commit is not all that was built
	}
	s := statement{Type: "https://in-toto.io/Statement/v1", Subject: r.made, PredicateType: "https://slsa.dev/provenance/v1"}
	s.Predicate.Definition = definition{
		BuildType:    "https://" + stint + "/blob/main/docs/RELEASING.md",
		External:     map[string]any{"version": "v" + r.version, "systems": systems},
		Internal:     map[string]any{"env": append([]string{}, r.env...)},
		Dependencies: []descriptor{source},
	}
	s.Predicate.Run.Builder.ID = "https://" + stint + "/release"
	for _, uri := range slices.Sorted(maps.Keys(r.modules)) {
		s.Predicate.Definition.Dependencies = append(s.Predicate.Definition.Dependencies, descriptor{URI: uri, Digest: r.modules[uri]})
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return r.write("stint_"+r.version+".provenance.json", func(path string) error { return os.WriteFile(path, append(text, '\n'), 0o644) })
}

// digest returns the digest of a module that go.sum and binaries call h1, as in-toto
// has it; none for Go's own library.
func (m *module) digest() (map[string]string, error) {
	if m.sum == "" {
		return nil, nil
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.sum, "h1:"))
	if err != nil {
		return nil, fmt.Errorf("%s: sum %q: %w", m.Path, m.sum, err)
	}
	return map[string]string{"dirHash": hex.EncodeToString(sum)}, nil
}
