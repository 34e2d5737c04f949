package rulesxds

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/stint-dev/stint/policy/rulesfile"
	"github.com/stint-dev/stint/service/importers"
	"github.com/stint-dev/stint/service/importers/envoyrules"
)

const (
	typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
	// documentName is what errors call the rules of a configuration.
	documentName = "xds.yaml"
	// mostNotes is how many differences of a configuration the log says.
	mostNotes = 20
)

// convert returns the rules of a configuration as a document. A limit that would be
// lost is an error.
func convert(url string, resources []*anypb.Any) (document []byte, notes importers.Notes, err error) {
	if url != typeURL {
		return nil, nil, fmt.Errorf("resources of type %.100q: want %s", url, typeURL)
	}
	var domains []*envoyrules.Domain
	known := map[string]bool{}
	for i, resource := range resources {
		d, err := domain(resource)
		if err != nil {
			return nil, nil, fmt.Errorf("resource %d: %w", i+1, err)
		}
		if known[d.Name] {
			return nil, nil, fmt.Errorf("resource %d: the domain %q comes twice", i+1, d.Name)
		}
		known[d.Name] = true
		domains = append(domains, d)
	}
	slices.SortFunc(domains, func(a, b *envoyrules.Domain) int { return cmp.Compare(a.Name, b.Name) })
	document, notes = envoyrules.Convert(domains, envoyrules.Options{Compatible: true})
	for _, note := range notes {
		if note.Lost {
			err = errors.Join(err, errors.New(note.String()))
		}
	}
	return document, notes, err
}

// domain returns the descriptors of one resource: the message has the fields of the file
// of that service.
func domain(resource *anypb.Any) (*envoyrules.Domain, error) {
	var config ratelimit.RateLimitConfig
	if err := resource.UnmarshalTo(&config); err != nil {
		return nil, err
	}
	name := config.GetName()
	config.Name = "" // of the resource, not of the file
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(&config)
	if err != nil {
		return nil, err
	}
	root, err := rulesfile.ReadJSON(text)
	if err != nil {
		return nil, err
	}
	return envoyrules.Decode(cmp.Or(name, "configuration"), root)
}
