package memstore_test

import (
	"testing"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// BenchmarkLayers takes from one and from two keys in one decision.
func BenchmarkLayers(b *testing.B) {
	s := memstore.New(memstore.Options{})
	client := under(b, s, "client", stint.PerSecond(1_000_000_000))
	all := under(b, s, "all", stint.PerSecond(1_000_000_000), stint.PerHour(1_000_000_000_000))
	for name, parts := range map[string][]stint.Part{
		"two keys":   {client.Key("client 1"), all.Key("all")},
		"three keys": {all.Key("client 1"), all.Key("client 2"), all.Key("client 3")},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r := stint.All(parts...)
			for b.Loop() {
				if _, err := r.Take(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
