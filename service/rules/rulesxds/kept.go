package rulesxds

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/stint-dev/stint/service/atomicfile"
)

// lockWithin is how long another process may take to write the file.
const lockWithin = 2 * time.Second

// keep writes the domains in force to their file. Without it, a process that starts later has no limit for
// a part that is refused, as if it were new. If it cannot be written, it is removed: an older one would put
// back what has been taken out since.
func (s *Source) keep() {
	if s.kept == "" {
		return
	}
	all := &discovery.DiscoveryResponse{TypeUrl: typeURL, ControlPlane: &core.ControlPlane{Identifier: s.url}}
	for _, d := range s.domains {
		all.Resources = append(all.Resources, d.sent)
	}
	data, err := proto.Marshal(all)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(s.kept), 0o700)
	}
	var lock io.Closer
	if err == nil {
		lock, err = atomicfile.Lock(s.kept, lockWithin)
	}
	if err == nil {
		err = atomicfile.Write(s.kept, func(w io.Writer) error { _, err := w.Write(data); return err })
		err = errors.Join(err, lock.Close())
	}
	if err != nil {
		err = errors.Join(err, os.Remove(s.kept))
		s.log.Warn("xDS: what is in force is not kept: after a restart, parts that are refused have no limit", "file", s.kept, "err", err)
	}
}

// recall reads the domains that were in force. It reports whether there are any of this control plane.
func (s *Source) recall() bool {
	data, err := os.ReadFile(s.kept)
	var all discovery.DiscoveryResponse
	if err != nil || proto.Unmarshal(data, &all) != nil || all.GetControlPlane().GetIdentifier() != s.url {
		return false
	}
	s.domains = make(map[string]*domain, len(all.Resources))
	for _, one := range all.Resources {
		if d, err := domainOf(one); err == nil {
			s.domains[d.read.Name] = d
			d.read = nil
		}
	}
	return true
}
