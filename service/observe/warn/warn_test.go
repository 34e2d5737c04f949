package warn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/service/observe/warn"
)

// decider asks a policy, and tells a Warner.
func decider(t *testing.T, w *warn.Warner, text string) func(ip string) {
	p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, text), policy.Options{})
	return func(ip string) {
		var r policy.Result
		if err := p.Decide(t.Context(), policy.Map{"ip": ip}, 1, &r); err != nil {
			t.Fatal(err)
		}
		w.Decided(&r)
	}
}

// A ban is warned of once, however long it is, and said to be one.
func TestWarnerBans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		w := warn.New(warn.Options{At: 100, Send: func(w *warn.Warning) {
			text, _ := json.Marshal(w.About)
			got = append(got, fmt.Sprint(w.Type, " ", strings.Contains(string(text), `"used":null,"of":1,"retry_after_ms":3600000,"banned":true`)))
		}})
		ask := decider(t, w, `{"rules": [{"name": "a", "key": ["ip"], "limits": ["1/1s ban 1h"]}]}`)
		for range 118 {
			ask("192.0.2.7")
			ask("192.0.2.7")
			time.Sleep(time.Minute)
		}
		want := []string{"stint.limit.near false", "stint.limit.denied true", "stint.limit.near false", "stint.limit.denied true"}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestWarner warns at 80 %, and at the first denial, once each.
func TestWarner(t *testing.T) {
	var got []string
	w := warn.New(warn.Options{At: 80, Send: func(w *warn.Warning) {
		got = append(got, fmt.Sprint(w.Type, " ", w.About.Key, " ", *w.About.Used, " of ", w.About.Of, " ", w.About.RetryAfterMS != nil))
	}})
	ask := decider(t, w, `{"rules": [{"name": "a", "key": ["ip"], "limits": ["10/d"]}, {"name": "b", "key": ["ip"], "limits": ["1/d"], "shadow": true}]}`)
	for range 13 {
		ask("192.0.2.7")
	}
	ask("192.0.2.8")
	want := []string{"stint.limit.near 192.0.2.7 8 of 10 false", "stint.limit.denied 192.0.2.7 10 of 10 true"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	counts := make(map[string]uint64)
	w.Counts(func(rule string, level warn.Level, n uint64) { counts[rule+" "+string(level)] = n })
	if len(counts) != 2 || counts["a near"] != 1 || counts["a denied"] != 1 {
		t.Errorf("%v", counts)
	}
	w.Keep(map[string]bool{})
	w.Counts(func(rule string, _ warn.Level, _ uint64) { t.Errorf("counts of %s, which is gone", rule) })
}

// TestWarnerFlood warns of more keys than there is room for: the others are left
// out, and counted.
func TestWarnerFlood(t *testing.T) {
	synctest.Test(t, warnerFlood)
}

func warnerFlood(t *testing.T) {
	sent := 0
	w := warn.New(warn.Options{At: 80, Send: func(*warn.Warning) { sent++ }})
	ask := decider(t, w, `{"rules": [{"name": "a", "key": ["ip"], "limits": ["1/d"]}]}`)
	const n = 100_000
	for i := range n {
		ask(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
	}
	if left := w.Counts(func(string, warn.Level, uint64) {}); sent > 1<<16 || sent < 1<<15 || int(left)+sent != n {
		t.Errorf("%d sent, %d left out", sent, left)
	}
	time.Sleep(24*time.Hour + time.Second) // of these no more is known
	sent = 0
	for i := range 1000 {
		ask(fmt.Sprintf("192.0.%d.%d", i>>8, i&255))
	}
	if sent != 1000 {
		t.Errorf("a day later %d of 1000 are sent", sent)
	}
}

// TestWebhook posts to a receiver that fails at first: the body is signed, it is
// tried again, and what finds no room is dropped.
func TestWebhook(t *testing.T) {
	secret := []byte("0123456789abcdef")
	var mu sync.Mutex
	var bodies []string
	var tries atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header
		if want := warn.Sign(secret, h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), body); h.Get("Webhook-Signature") != want {
			t.Errorf("signature %s, want %s", h.Get("Webhook-Signature"), want)
		}
		if tries.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, string(body))
	}))
	defer receiver.Close()
	h, err := warn.NewWebhook(warn.WebhookOptions{URL: receiver.URL, Secret: secret, Queue: 2, First: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		h.Send(&warn.Warning{ID: fmt.Sprint("msg_", i), About: warn.About{Rule: "a", Key: "é\x00"}})
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Run(ctx)
	}()
	for {
		if sent, _, dropped := h.Counts(); sent == 2 && dropped == 3 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	<-done
	if len(bodies) != 2 || tries.Load() != 4 {
		t.Errorf("%d tries, %q", tries.Load(), bodies)
	}
	var w warn.Warning
	if err := json.Unmarshal([]byte(bodies[0]), &w); err != nil || w.ID != "msg_0" || w.About.Key != "é\x00" {
		t.Errorf("%v %+v", err, w)
	}
}

// TestWebhookRefuses makes webhooks that would show warnings to others, or could
// not be checked.
func TestWebhookRefuses(t *testing.T) {
	for _, c := range []struct{ url, secret, want string }{
		{"http://example.com/hook", "0123456789abcdef", "want an https address"},
		{"ftp://127.0.0.1", "0123456789abcdef", "want an https address"},
		{"https://example.com/hook", "short", "a secret of 5 bytes"},
		{"https://example.com/hook", "whsec_???????????????", "base64"},
	} {
		if _, err := warn.NewWebhook(warn.WebhookOptions{URL: c.url, Secret: []byte(c.secret)}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
