package server_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/observe/topkeys"
	"github.com/stint-dev/stint/service/observe/warn"
	"github.com/stint-dev/stint/service/server"
)

// TestSettledSeen: a settlement warns, is among what keys have used, and is counted, as those of
// the proxy are.
func TestSettledSeen(t *testing.T) {
	o := newOptions(t, `{rules: [{name: tokens, key: [user], limits: [1000 per day fixed_window]}], attributes: [user]}`)
	var warned []string
	keys := topkeys.New()
	o.Observer = observe.New(observe.Options{TopKeys: keys, Warner: warn.New(warn.Options{At: 80, Send: func(w *warn.Warning) {
		warned = append(warned, fmt.Sprint(w.About.Key, " ", *w.About.Used))
	}})})
	t.Cleanup(o.Observer.Close)
	o.Admin.Observer = o.Observer
	h := server.NewHandler(o)
	for user, cost := range map[string]string{"a": `"cost":1300`, "b": `"costs":{"tokens":20}`, "c": ""} {
		body := fmt.Sprintf(`{"attributes":{"user":%q},"cost":10}`, user)
		if user == "b" {
			body = fmt.Sprintf(`{"attributes":{"user":%q},"costs":{"tokens":10}}`, user)
		}
		var said struct{ Reservation string }
		if err := json.Unmarshal(post(h, "/v1/reserve", body).Body.Bytes(), &said); err != nil {
			t.Fatal(err)
		}
		path, body := "/v1/settle", fmt.Sprintf(`{"reservation":%q,%s}`, said.Reservation, cost)
		if user == "c" {
			path, body = "/v1/cancel", fmt.Sprintf(`{"reservation":%q}`, said.Reservation)
		}
		if got := post(h, path, body); got.Code != 200 {
			t.Fatal(got.Body)
		}
	}
	var used []string
	for _, k := range keys.Nearest(9) {
		used = append(used, fmt.Sprint(k.Key, " ", k.Used))
	}
	if want := []string{"a 1300", "b 20"}; !slices.Equal(used, want) || !slices.Equal(warned, want[:1]) {
		t.Errorf("used %q, warned of %q", used, warned)
	}
	w := served(h, httptest.NewRequest("GET", "/metrics", nil))
	if want := `stint_settled_units_total{interface="http",rule="tokens"} 1320`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("no %s in the metrics", want)
	}
}
