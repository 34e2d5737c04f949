package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// The parts of an SPDX 2.3 document that a program of Go modules has.
type spdxDocument struct {
	Version       string             `json:"spdxVersion"`
	DataLicense   string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string         `json:"SPDXID"`
	Name      string         `json:"name"`
	Version   string         `json:"versionInfo"`
	File      string         `json:"packageFileName,omitempty"`
	Download  string         `json:"downloadLocation"`
	Analyzed  bool           `json:"filesAnalyzed"`
	Concluded string         `json:"licenseConcluded"`
	Declared  string         `json:"licenseDeclared"`
	Copyright string         `json:"copyrightText"`
	Sums      []spdxSum      `json:"checksums,omitempty"`
	Refs      []spdxExternal `json:"externalRefs,omitempty"`
}

type spdxSum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxExternal struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

var notID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// bill writes what a binary is made of, as SPDX. Its modules are those that the
// binary itself names.
func (r *release) bill(path string, t target, binary string, modules []module) error {
	text, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(text))
	d := spdxDocument{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: r.name(t),
		Namespace: "https://" + stint + "/spdx/" + r.name(t) + "-" + sum,
		Creation:  spdxCreation{Created: r.at.Format(time.RFC3339), Creators: []string{"Tool: " + stint + "/release"}},
		Packages: []spdxPackage{{
			ID: "SPDXRef-stint", Name: stint + "/cmd/stint", Version: "v" + r.version, File: filepath.Base(binary),
			Download: "NOASSERTION", Concluded: "Apache-2.0", Declared: "Apache-2.0", Copyright: "NOASSERTION",
			Sums: []spdxSum{{"SHA256", sum}},
		}},
		Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-stint"}},
	}
	for _, m := range modules {
		id := "SPDXRef-" + notID.ReplaceAllString(m.Path, "-")
		d.Packages = append(d.Packages, spdxPackage{
			ID: id, Name: m.Path, Version: m.Version, Download: "NOASSERTION",
			Concluded: m.licence, Declared: m.licence, Copyright: "NOASSERTION",
			Refs: []spdxExternal{{"PACKAGE-MANAGER", "purl", m.purl()}},
		})
		d.Relationships = append(d.Relationships, spdxRelationship{"SPDXRef-stint", "DEPENDS_ON", id})
	}
	text, err = json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
