package warn

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/internal/ports"
)

// WebhookOptions are the options of a Webhook.
type WebhookOptions struct {
	// URL is the receiver: https, or http on this machine.
	URL string
	// Secret is the key for signatures, of 16 bytes or more.
	Secret []byte
	// Log receives failures, without keys. The default discards them.
	Log *slog.Logger
	// Queue is how many warnings may wait. The default value is 1024.
	Queue int
	// Attempts is how often a warning is tried. First is the pause after the first attempt; each
	// further pause is twice as long. The default values are 6 and 1 s, which take about half a
	// minute.
	Attempts int
	First    time.Duration
}

// A Webhook posts warnings one after the other, signed as in Standard Webhooks. Its methods may be
// called from many goroutines at once.
type Webhook struct {
	o     WebhookOptions
	queue chan *Warning
	http  *http.Client

	sent, failed, dropped atomic.Uint64
}

// NewWebhook returns a Webhook. Run sends its warnings.
func NewWebhook(o WebhookOptions) (*Webhook, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !local(u.Hostname())) {
		return nil, errors.New("want an https address, or an http one on this machine")
	}
	if err := ports.Check(u); err != nil {
		return nil, err
	}
	if len(o.Secret) < 16 {
		return nil, fmt.Errorf("a secret of %d bytes: at least 16, such as echo whsec_$(openssl rand -base64 32) writes", len(o.Secret))
	}
	if rest, ok := strings.CutPrefix(string(o.Secret), "whsec_"); ok {
		if o.Secret, err = base64.StdEncoding.DecodeString(rest); err != nil {
			return nil, errors.New("a secret that begins with whsec_ is base64 behind that")
		}
	}
	o.Queue = cmp.Or(o.Queue, 1024)
	o.Attempts = cmp.Or(o.Attempts, 6)
	o.First = cmp.Or(o.First, time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Webhook{o: o, queue: make(chan *Warning, o.Queue), http: &http.Client{
		Timeout:       5 * time.Second,
		Transport:     http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func local(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Send queues a warning. If the queue is full, the warning is dropped and counted.
func (h *Webhook) Send(w *Warning) {
	select {
	case h.queue <- w:
	default:
		h.dropped.Add(1)
	}
}

// Run sends until ctx is done. Warnings that wait then are not sent.
func (h *Webhook) Run(ctx context.Context) {
	defer h.http.CloseIdleConnections()
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-h.queue:
			h.deliver(ctx, w)
		}
	}
}

// deliver tries until the warning is accepted, refused for good, or has used up its attempts.
func (h *Webhook) deliver(ctx context.Context, w *Warning) {
	body, err := json.Marshal(w)
	if err != nil {
		h.failed.Add(1)
		return
	}
	pause := h.o.First
	for attempt := 1; ; attempt++ {
		again, err := h.post(ctx, w.ID, body)
		if err == nil {
			h.sent.Add(1)
			return
		}
		if !again || attempt == h.o.Attempts || ctx.Err() != nil {
			h.failed.Add(1)
			h.o.Log.Warn("webhook: a warning was not taken", "id", w.ID, "rule", w.About.Rule, "attempts", attempt, "error", err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause + rand.N(pause/4+1)):
		}
		pause *= 2
	}
}

// post sends once, and reports whether to try again.
func (h *Webhook) post(ctx context.Context, id string, body []byte) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.o.URL, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", stamp)
	r.Header.Set("Webhook-Signature", Sign(h.o.Secret, id, stamp, body))
	resp, err := h.http.Do(r)
	if err != nil {
		if of, ok := errors.AsType[*url.Error](err); ok {
			err = of.Err // without the URL, which may hold a secret
		}
		return true, err
	}
	defer resp.Body.Close() // the body is not wanted
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	switch {
	case resp.StatusCode/100 == 2:
		return false, nil
	case resp.StatusCode == http.StatusGone || resp.StatusCode == http.StatusBadRequest:
		return false, errors.New(resp.Status)
	}
	return true, errors.New(resp.Status)
}

// Sign returns the signature of a body, as in Standard Webhooks: "v1," and base64 of HMAC-SHA256
// over id.timestamp.body.
func Sign(secret []byte, id, timestamp string, body []byte) string {
	m := hmac.New(sha256.New, secret)
	_, _ = io.WriteString(m, id+"."+timestamp+".") // a hash returns no error
	m.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// Counts returns how many warnings were accepted, given up, and dropped from a full queue.
func (h *Webhook) Counts() (sent, failed, dropped uint64) {
	return h.sent.Load(), h.failed.Load(), h.dropped.Load()
}
