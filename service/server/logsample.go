package server

import (
	"context"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

const (
	// linesPerCause is how many lines of one cause are written.
	linesPerCause = "1 per 10s burst 5"
	// maxCauses is how many causes are remembered. Further causes share limits with
	// each other, and the oldest counts of lines left out are dropped.
	maxCauses = 64
)

// SampleLog returns a logger for errors that clients can cause as often as they like. It
// writes the first few lines of one cause, and then one in ten seconds, with the number
// of lines left out. Lines that differ only in numbers and quoted text have one cause.
func SampleLog(logger *slog.Logger) *slog.Logger {
	if _, ok := logger.Handler().(*sampledHandler); ok {
		return logger
	}
	return slog.New(&sampledHandler{logger.Handler(), &logCauses{limiter: sync.OnceValue(newCauseLimiter), left: make(map[string]leftOut)}})
}

// newCauseLimiter returns the limit of each cause.
func newCauseLimiter() *stint.Limiter {
	limit, err := stint.Parse(linesPerCause)
	if err != nil {
		panic(err) // it is the constant above
	}
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{MaxKeys: maxCauses}), "log", limit)
	if err != nil {
		panic(err) // it has one limit
	}
	return limiter
}

// sampledHandler is a handler that leaves out lines; see [SampleLog].
type sampledHandler struct {
	slog.Handler
	causes *logCauses
}

// logCauses are the causes of the lines so far.
type logCauses struct {
	limiter func() *stint.Limiter // made with the first line: most processes never write one

	mu   sync.Mutex
	left map[string]leftOut
}

// leftOut is how many lines of a cause were left out, and when the latest was.
type leftOut struct {
	lines  int
	latest time.Time
}

// detail matches what may differ between lines of one cause.
var detail = regexp.MustCompile(`"(?:[^"\\]|\\.)*"?|\d+`)

// Handle implements [slog.Handler].
func (s *sampledHandler) Handle(ctx context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.Value.String()
		return true
	})
	text = detail.ReplaceAllString(text, "#")
	text = text[:min(len(text), 200)]
	if ok, err := s.causes.limiter().Allow(context.WithoutCancel(ctx), text); err != nil || !ok {
		s.causes.leaveOut(text)
		return nil
	}
	if n := s.causes.written(text); n > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out", n))
	}
	return s.Handler.Handle(ctx, r)
}

func (c *logCauses) leaveOut(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.left[text]; !known && len(c.left) >= maxCauses {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(c.left)), func(a, b string) int {
			return c.left[a].latest.Compare(c.left[b].latest)
		})
		delete(c.left, oldest)
	}
	c.left[text] = leftOut{c.left[text].lines + 1, time.Now()}
}

func (c *logCauses) written(text string) (left int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left = c.left[text].lines
	delete(c.left, text)
	return left
}

// WithAttrs implements [slog.Handler].
func (s *sampledHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &sampledHandler{s.Handler.WithAttrs(attrs), s.causes}
}

// WithGroup implements [slog.Handler].
func (s *sampledHandler) WithGroup(name string) slog.Handler {
	return &sampledHandler{s.Handler.WithGroup(name), s.causes}
}
