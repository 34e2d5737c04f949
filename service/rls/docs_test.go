package rls_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"
	"testing/synctest"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/stint-dev/stint/internal/testkit/pages"
	"github.com/stint-dev/stint/service/rls"
)

// TestDocsRequests sends the requests of docs/ENVOY.md, one after the other,
// and compares the answers with what stands behind them.
func TestDocsRequests(t *testing.T) {
	page := pages.Read(t, "docs/ENVOY.md")
	all := pages.Blocks(page, "json")
	if len(all) == 0 || len(all)%2 != 0 {
		t.Fatalf("%d blocks: a request without an answer", len(all))
	}
	synctest.Test(t, func(t *testing.T) {
		s := serviceOf(t, pages.Blocks(page, "yaml")[0], rls.Options{})
		for i := 0; i < len(all); i += 2 {
			_, answer, err := s.JSON(t.Context(), []byte(all[i]), false)
			if err != nil {
				t.Fatalf("%s\n%v", all[i], err)
			}
			var got, want bytes.Buffer
			if json.Compact(&got, answer) != nil || json.Compact(&want, []byte(all[i+1])) != nil || got.String() != want.String() {
				t.Errorf("%s\ngot:\n%s\nwant:\n%s", all[i], got.String(), want.String())
			}
		}
	})
}

// message reads a value of YAML as a message of Envoy's API, of which every
// field must be known.
func message(t *testing.T, value any, m proto.Message) {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(text, m); err != nil {
		t.Errorf("%s\n%v", text, err)
	}
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

// config returns the configuration of the first filter of the first listener,
// without the name of its type.
func config(t *testing.T, envoy any) any {
	t.Helper()
	at := envoy
	for _, step := range []any{"static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config"} {
		switch name := step.(type) {
		case int:
			at = at.([]any)[name]
		case string:
			at = at.(map[string]any)[name]
		}
	}
	found := maps.Clone(at.(map[string]any))
	delete(found, "@type")
	return found
}

// TestDocsConfiguration reads the configuration for Envoy in docs/configs as a message of
// Envoy's API.
func TestDocsConfiguration(t *testing.T) {
	var envoy any
	if err := yaml.Unmarshal([]byte(pages.Read(t, "docs/configs/envoy.yaml")), &envoy); err != nil {
		t.Fatal(err)
	}
	message(t, envoy, &bootstrap.Bootstrap{})

	manager := &hcm.HttpConnectionManager{}
	message(t, config(t, envoy), manager)
	if !manager.GetUseRemoteAddress().GetValue() {
		t.Error("remote_address is what the client writes into X-Forwarded-For: use_remote_address is missing")
	}
}
