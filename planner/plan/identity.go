package plan

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/stint-dev/stint/planner/accesslog"
)

// An identity is what identifies the clients of a route better than their address: a
// name or a key that most of the route's requests have.
type identity struct {
	name string // of the attribute
	at   int    // among the attributes of an extraction
	// tier is the attribute that says of which class a client is, such as its
	// plan, "" if there is none.
	tier   string
	tierAt int
}

// identities are the attributes that may be one, best first, and tierNames how
// fields are called, at their end, that say of which class a client is.
var (
	identities = []string{"header.x-api-key", "user"}
	tierNames  = []string{"plan", "tier", "subscription"}
)

// What makes an attribute an identity of a route, and a field a tier.
const (
	identityPart = 0.5 // of the requests have it
	mostTiers    = 8
	mostSurveyed = 1 << 16 // different values that are counted
)

// A survey counts what the requests of a route have.
type survey struct {
	requests int64
	has      []int64             // by attribute
	kinds    []map[string]string // by attribute: the values, and the tier that was first seen with each
	mixed    []int64             // requests with another tier than their identity had before
}

// survey reads the logs and returns the identities of routes, and who asked for which
// paths.
func (o *Options) survey(ctx context.Context, inputs []*input) (map[string]identity, *sightings, error) {
	const path, ip, status = 0, 1, 2
	names := append([]string{"path", "ip", "status"}, identities...)
	tier := tierOf(inputs)
	if tier != "" {
		names = append(names, tier)
	}
	q, err := newExtraction(o, names)
	if err != nil {
		return nil, nil, err
	}
	all, seen, a := make(map[string]*survey), &sightings{all: make(map[string]*sighting), made: make(map[string]int)}, q.extractor()
	for _, in := range inputs {
		file, err := in.open()
		if err != nil {
			return nil, nil, err
		}
		p := in.format.With(q.attributes).Parser()
		r := accesslog.Record{Values: make([][]byte, len(q.attributes))}
		for block, err := file.Next(nil); err == nil && ctx.Err() == nil; block, err = file.Next(block) {
			for rest := block; len(rest) > 0; {
				var line []byte
				if line, rest = accesslog.Line(rest); p.Parse(line, &r) == nil && r.Values[path] != nil {
					a.client(r.Values)
					route, pattern := routeOf(string(r.Values[path]))
					seen.add(route, pattern, a.owner(r.Values[ip]), r.Values[status])
					if all[route] == nil {
						all[route] = newSurvey()
					}
					all[route].add(r.Values[status+1 : len(names)])
				}
			}
		}
		file.Close()
	}
	found := make(map[string]identity)
	for route, s := range all {
		if one, ok := s.identity(tier); ok && route != "login" {
			found[route] = one
		}
	}
	return found, seen, nil
}

// tierOf returns the field of the logs that says of which class a client is.
func tierOf(inputs []*input) string {
	for _, in := range inputs {
		for _, field := range in.format.Fields {
			last := field[strings.LastIndexAny(field, "._-")+1:]
			if slices.Contains(tierNames, last) {
				return field
			}
		}
	}
	return ""
}

func newSurvey() *survey {
	s := &survey{has: make([]int64, len(identities)), mixed: make([]int64, len(identities))}
	for range identities {
		s.kinds = append(s.kinds, make(map[string]string))
	}
	return s
}

// add takes one request in: the values of identities, and the tier behind them.
func (s *survey) add(values [][]byte) {
	s.requests++
	tier := ""
	if len(values) > len(identities) {
		tier = string(values[len(identities)])
	}
	for i := range identities {
		v := values[i]
		if v == nil {
			continue
		}
		s.has[i]++
		before, known := s.kinds[i][string(v)]
		switch {
		case known && before != tier:
			s.mixed[i]++
		case !known && len(s.kinds[i]) < mostSurveyed:
			s.kinds[i][string(v)] = tier
		}
	}
}

// identity returns what identifies the route's clients, and their tier if each
// has one of a few.
func (s *survey) identity(tier string) (one identity, ok bool) {
	for i, name := range identities {
		if float64(s.has[i]) < identityPart*float64(s.requests) || len(s.kinds[i]) < leastClients || float64(len(s.kinds[i])) > (1-identityPart)*float64(s.has[i]) {
			continue
		}
		one = identity{name: name}
		tiers := make(map[string]int)
		for _, t := range s.kinds[i] {
			tiers[t]++
		}
		few := slices.Min(slices.Collect(maps.Values(tiers)))
		if tier != "" && tiers[""] == 0 && len(tiers) > 1 && len(tiers) <= mostTiers && few >= leastClients && float64(s.mixed[i]) <= fewErrors*float64(s.has[i]) {
			one.tier = tier
		}
		return one, true
	}
	return one, false
}

// A group is a part of a route's requests that has a limit of its own: those
// without the identity, those with it, and of these each tier.
type group struct{ route, by, tier string }

// key writes a group as a part of a key.
func (g group) key() string {
	if g.by == "" {
		return g.route
	}
	return g.route + "\x00" + g.by + "\x00" + g.tier
}

func groupOf(key string) group {
	parts := append(strings.SplitN(key, "\x00", 3), "", "")
	return group{cmp.Or(parts[0], pagesRoute), parts[1], parts[2]}
}

// groupFor returns the group that a line is of, and the client in it; nil is its
// address.
func (a *extractor) groupFor(values [][]byte) (g group, client []byte) {
	pattern := ""
	if g.route, pattern = routeOf(string(values[a.key[a.routed]])); !slices.Contains(a.patterns[g.route], pattern) {
		g.route = pagesRoute
	}
	one, ok := a.by[g.route]
	if !ok || values[one.at] == nil {
		return g, nil
	}
	if g.by = one.name; one.tier != "" {
		g.tier = string(values[one.tierAt])
	}
	return g, values[one.at]
}

// identified reports whether a line has what identifies the clients of its route
// apart, so that its address does not matter.
func (a *extractor) identified(values [][]byte) bool {
	if len(a.by) == 0 {
		return false
	}
	_, client := a.groupFor(values)
	return client != nil
}
