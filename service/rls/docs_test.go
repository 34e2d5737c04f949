package rls_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"

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

// TestDocsConfiguration reads the configuration for Envoy in docs/configs as a message of
// Envoy's API, of which every field must be known.
func TestDocsConfiguration(t *testing.T) {
	var value any
	if err := yaml.Unmarshal([]byte(pages.Read(t, "docs/configs/envoy.yaml")), &value); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var envoy bootstrap.Bootstrap
	var manager hcm.HttpConnectionManager
	if err := protojson.Unmarshal(text, &envoy); err != nil {
		t.Fatal(err)
	}
	filter := envoy.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0]
	if err := errors.Join(filter.GetTypedConfig().UnmarshalTo(&manager), envoy.ValidateAll(), manager.ValidateAll()); err != nil {
		t.Error(err)
	}
	if !manager.GetUseRemoteAddress().GetValue() {
		t.Error("remote_address is what the client writes into X-Forwarded-For: use_remote_address is missing")
	}
}
