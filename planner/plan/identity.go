package plan

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/stint-dev/stint/planner/accesslog"
)

// An identity is an attribute that tells the clients of a route apart better than their address: a
// name or a key that most requests of the route have.
type identity struct {
	name string // the name of the attribute
	at   int    // its index in the attributes of an extraction
	// known are the values that the server answered. Clients may have made up others, or sent them
	// too late to tell.
	known map[string]*kind
	// tier is the attribute with the class of a client, such as its plan, or "" if there is none.
	// tiers are the classes that many clients have.
	tier   string
	tierAt int
	tiers  []string
}

// identities are the attributes that may be an identity, best first. tierNames are the ends of
// names of fields that may hold a class of clients.
var (
	identities = [...]string{"header.x-api-key", "user"}
	tierNames  = []string{"plan", "tier", "subscription"}
)

// Thresholds for an attribute to be an identity of a route, and for a field to be a tier.
const (
	identityPart = 0.5 // the fraction of requests that must have it
	mostTiers    = 8
	mostSurveyed = 1 << 16 // the most values that are counted
	tenths       = 10      // no client counts for more than one of ten
)

// A survey counts the answered requests of a route and their identities. Others do not count, since
// anybody may send any name.
type survey struct {
	from  map[string]*origin                // by address
	kinds [len(identities)]map[string]*kind // by attribute and value
}

// An origin is the requests from one address.
type origin struct {
	requests  int64
	has, made [len(identities)]int64 // requests with a value, and values that came from here first
}

// A kind is the requests with one value of an identity.
type kind struct {
	requests int64
	first    *origin
	tier     string // the first tier that came with the value
	mixed    bool   // a different tier came with it too
}

// survey reads the logs and returns the identity of each route, and which clients asked for which
// paths.
func (o *Options) survey(ctx context.Context, inputs []*input) (map[string]identity, *sightings, error) {
	const path, ip, status = 0, 1, 2
	names := append([]string{"path", "ip", "status"}, identities[:]...)
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
					if answered(r.Values[status]) {
						all[route].add(a.owner(r.Values[ip]), r.Values[status+1:len(names)])
					}
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

// tierOf returns the field of the logs that holds the class of a client.
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
	s := &survey{from: make(map[string]*origin)}
	for i := range s.kinds {
		s.kinds[i] = make(map[string]*kind)
	}
	return s
}

// answered reports whether the server granted the request, as far as the log says.
func answered(status []byte) bool {
	return status == nil || status[0] == '2' || string(status) == "304"
}

// add adds one request: the values of identities, and after them the tier.
func (s *survey) add(ip []byte, values [][]byte) {
	from := s.from[string(ip)]
	if from == nil {
		if len(s.from) == mostSurveyed {
			return
		}
		from = new(origin)
		s.from[string(ip)] = from
	}
	from.requests++
	for i := range identities {
		v := values[i]
		if v == nil {
			continue
		}
		from.has[i]++
		one := s.kinds[i][string(v)]
		if one == nil {
			if len(s.kinds[i]) == mostSurveyed || from.made[i] == mostSurveyed/tenths {
				continue
			}
			from.made[i]++
			one = &kind{first: from}
			s.kinds[i][string(v)] = one
		}
		one.requests++
		if len(values) > len(identities) {
			tier := string(values[len(identities)])
			one.mixed = one.mixed || tier != "" && one.tier != "" && tier != one.tier
			one.tier = cmp.Or(one.tier, tier)
		}
	}
}

// tenth returns the cap to put on each count so that none is more than a tenth of the sum of the
// capped counts. With fewer than ten counts there is no cap.
func tenth(counts []int64) int64 {
	rest := int64(0)
	for _, n := range counts {
		rest += n
	}
	slices.SortFunc(counts, func(a, b int64) int { return cmp.Compare(b, a) })
	for k, n := range counts[:min(len(counts), tenths)] {
		if most := rest / int64(tenths-k); n <= most {
			return most
		}
		rest -= n
	}
	return math.MaxInt64
}

// identity returns the identity of the route's clients, and their tiers if most clients have one of
// a few. No address and no value counts for more than a tenth.
func (s *survey) identity(tier string) (one identity, ok bool) {
	var counts []int64
	for _, from := range s.from {
		counts = append(counts, from.requests)
	}
	most := tenth(counts)
	weighed := func(n int64, of *origin) int64 { return n * min(most, of.requests) / of.requests }
	for i, name := range identities {
		counts = counts[:0]
		for _, k := range s.kinds[i] {
			counts = append(counts, k.requests)
		}
		mostOfOne := tenth(counts)
		has, made, without := int64(0), int64(0), int64(0)
		for _, k := range s.kinds[i] {
			has += weighed(min(k.requests, mostOfOne), k.first)
		}
		for _, from := range s.from {
			made += weighed(from.made[i], from)
			without += weighed(from.requests-from.has[i], from)
		}
		if float64(has) < identityPart*float64(has+without) || len(s.kinds[i]) < leastClients || float64(made) > (1-identityPart)*float64(has) {
			continue
		}
		one = identity{name: name, known: s.kinds[i]}
		if one.tiers = tiersOf(s.kinds[i]); len(one.tiers) > 1 {
			one.tier = tier
		}
		return one, true
	}
	return one, false
}

// tiersOf returns the tiers that many clients have, or none where clients change between tiers.
func tiersOf(clients map[string]*kind) (tiers []string) {
	members, all, mixed := make(map[string]int), 0, 0
	for _, k := range clients {
		if k.tier == "" {
			continue
		}
		all++
		members[k.tier]++
		if k.mixed {
			mixed++
		}
	}
	for tier, n := range members {
		if n >= leastClients {
			tiers = append(tiers, tier)
		}
	}
	if float64(mixed) > fewErrors*float64(all) {
		return nil
	}
	slices.SortFunc(tiers, func(a, b string) int {
		return cmp.Or(cmp.Compare(members[b], members[a]), strings.Compare(a, b))
	})
	return tiers[:min(len(tiers), mostTiers)]
}

// A group is the requests of a route that share a limit: those without the identity, those with it,
// and among the latter each tier.
type group struct{ route, by, tier string }

// unknown is the tier of clients that no answer shows to be known, or to have a tier. They have no
// say in a limit, and are held to the limit of the others.
const unknown = "\x00"

// key writes a group as a value of a key.
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

// groupFor returns the group of a line and the client in it. A nil client means that it is the
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
	if one.known[string(values[one.at])] == nil || one.tier != "" && !slices.Contains(one.tiers, g.tier) {
		g.tier = unknown
	}
	return g, values[one.at]
}

// identified reports whether a line has the identity of its route, so that its address does not
// matter.
func (a *extractor) identified(values [][]byte) bool {
	if len(a.by) == 0 {
		return false
	}
	_, client := a.groupFor(values)
	return client != nil
}
