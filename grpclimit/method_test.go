package grpclimit_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// TestUnknownMethods calls a server that takes any method, as a proxy does, and finds the
// backend by how the method begins or ends. The limit is used up: no other spelling of the
// method reaches the backend, and every call that reaches a handler has been decided about.
func TestUnknownMethods(t *testing.T) {
	begins := func(method string) bool { return strings.HasPrefix(method, "/secret.S/") }
	for _, c := range []struct {
		match string
		of    func(method string) bool
	}{
		{`{"path": "/secret.S/**"}`, begins},
		{`{"grpc.service": "secret.S"}`, begins},
		{`{"grpc.method": "M"}`, func(method string) bool { return strings.HasSuffix(method, "/M") }},
	} {
		t.Run(c.match, func(t *testing.T) {
			rules := made.Rules(t, `{"attributes": ["grpc.service", "grpc.method"], "rules": [
				{"name": "secret", "match": `+c.match+`, "key": [], "limits": "1/h"},
				{"name": "others", "unless": `+c.match+`, "key": [], "limits": "1000000/s"}]}`)
			store := memstore.New(memstore.Options{})
			defer store.Close()
			p := made.Policy(t, store, rules, policy.Options{})
			decided := ""
			guard, err := grpclimit.NewServerPolicy(func() *policy.Policy { return p }, grpclimit.Options{
				OnDecision: func(_ context.Context, method string, _ grpclimit.Outcome) { decided = method },
			})
			if err != nil {
				t.Fatal(err)
			}
			reached := "" // there is one call at a time
			conn := dial(t, serve(t, guard.Unary(), guard.Stream(), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
				reached, _ = grpc.MethodFromServerStream(s)
				return s.SendMsg(&grpc_testing.Empty{})
			})))
			passed := 0
			for i, method := range oddMethods {
				decided, reached = "", ""
				err := conn.Invoke(soon(t), method, &grpc_testing.Empty{}, &grpc_testing.Empty{})
				if (err == nil) != (reached != "") || i == 0 && err != nil {
					t.Errorf("%.40q: %v, reached %.40q", method, err, reached)
				}
				if reached == "" {
					continue
				}
				passed++
				if decided != reached || i > 0 && c.of(reached) {
					t.Errorf("%.40q passes, decided as %q", reached, decided)
				}
			}
			if passed < 2 {
				t.Error("nothing else passes")
			}
		})
	}
}

// oddMethods are spellings of a method. The first uses up the limit.
var oddMethods = []string{
	"/secret.S/M", "/free.S/N", "/secret.S/../free.S/N", "/secret.S/./M", "/secret.S//M", "//secret.S/M", "/secret.S/M/", "/secret.S/M?x", "/secret.S/M#x",
	"/secret.S/%4d", "/secret%2eS/M", "/secret.S/%2e%2e/x", "/secret.S/x/M", "/secret.S/", "/secret.S", "/", "//", "/x/secret.S/M", "/secret.S/M;x", `/secret.S/\M`,
	"/" + strings.Repeat("x", 9000) + "/M", "/SECRET.S/N", "/secret.S/\xff", "/secret.S/M\t", "/free.S/../secret.S/M", "/free.S/N/../M", "/free.S/x/M",
	"/grpc.reflection.v9.Any/N", "/grpc.reflection.v1.ServerReflection/Other", "/grpc.health.v1.Health/Other", "/grpc.health.v1.Health/", "/grpc.health.v1.Health/Check/x",
}
