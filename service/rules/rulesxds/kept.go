package rulesxds

import (
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// kept returns the domains in force for a process that starts later. Without them it has no limit for a
// part that is refused, as if that were new. The last copy of the rules holds them, so they are always
// those of the rules beside them.
func (s *Source) kept() []byte {
	all := &discovery.DiscoveryResponse{TypeUrl: typeURL, ControlPlane: &core.ControlPlane{Identifier: s.url}}
	for _, d := range s.domains {
		all.Resources = append(all.Resources, d.sent)
	}
	data, err := proto.Marshal(all)
	if err != nil {
		s.log.Warn("xDS: what is in force is not kept: after a restart, parts that are refused have no limit", "err", err)
	}
	return data
}

// recall takes the domains that were in force before, if they are of this control plane.
func (s *Source) recall(kept []byte) {
	var all discovery.DiscoveryResponse
	if proto.Unmarshal(kept, &all) != nil || all.GetControlPlane().GetIdentifier() != s.url {
		return
	}
	s.domains = make(map[string]*domain, len(all.Resources))
	for _, one := range all.Resources {
		if d, err := domainOf(one); err == nil {
			s.domains[d.read.Name] = d
			d.read = nil
		}
	}
}
