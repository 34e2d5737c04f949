package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/stint-dev/stint/cmd/internal/service/warn"
)

// warnFlags say from where on customers are near their limits, and where that is
// reported.
type warnFlags struct {
	WarnAt            int    `env:"STINT_WARN_AT" default:"80" placeholder:"PERCENT" help:"From which part of a limit on a key is counted as near it, and the webhook is told (${default})."`
	Webhook           string `env:"STINT_WEBHOOK" placeholder:"URL" help:"Where it is posted that a key has used most of a limit, or was first denied: at most once a period and key. Signed as Standard Webhooks has it."`
	WebhookSecretFile string `env:"STINT_WEBHOOK_SECRET_FILE" placeholder:"FILE" help:"The secret that signs what is posted."`
}

// warner returns what warns, and the webhook, nil for none.
func (c *warnFlags) warner(logger *slog.Logger) (*warn.Warner, *warn.Webhook, error) {
	if c.WarnAt < 1 || c.WarnAt > 100 {
		return nil, nil, usage("--warn-at", "%d: from 1 to 100", c.WarnAt)
	}
	if c.Webhook == "" {
		return warn.New(warn.Options{At: c.WarnAt}), nil, nil
	}
	if c.WebhookSecretFile == "" {
		return nil, nil, usage("--webhook", "goes with --webhook-secret-file: who is told must be able to check who tells")
	}
	secret, err := os.ReadFile(c.WebhookSecretFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--webhook-secret-file: %w", err)
	}
	hook, err := warn.NewWebhook(warn.WebhookOptions{URL: c.Webhook, Secret: bytes.TrimSpace(secret), Log: logger})
	if err != nil {
		return nil, nil, &usageError{"--webhook", err}
	}
	return warn.New(warn.Options{At: c.WarnAt, Send: hook.Send}), hook, nil
}

// warn sends warnings until ctx is done.
func (s *sources) warn(ctx context.Context, background *sync.WaitGroup) {
	if s.webhook != nil {
		background.Go(func() { s.webhook.Run(ctx) })
	}
}
