package model_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/proof/model"
)

// line is a line of a vector file: the limits of the file, or an operation and
// what it must answer.
type line struct {
	Limits  []string
	T       string
	Key, Op string
	Cost    *int64
	Want    *struct {
		Allowed    bool
		Remaining  int64
		Limit      int64
		RetryAfter string `json:"retry_after"`
		ResetAfter string `json:"reset_after"`
		Delay      string
		Taken      int64
		DeniedBy   []string `json:"denied_by"`
	}
}

func TestVectors(t *testing.T) {
	files, err := filepath.Glob("../../storetest/vectors/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) { runVectors(t, file) })
	}
}

func runVectors(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := model.New()
	var limits []string
	for n, text := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("line %d: %v", n+1, err)
		}
		if n == 0 {
			limits = l.Limits
			continue
		}
		var layers []model.Layer
		for _, text := range limits {
			layers = append(layers, model.Layer{Name: text, Spec: parse(t, text), Key: l.Key})
		}
		cost := int64(1)
		if l.Cost != nil {
			cost = *l.Cost
		}
		now := duration(t, l.T)
		var a model.Answer
		switch l.Op {
		case "", "take":
			a = m.Take(now, layers, cost)
		case "peek":
			a = m.Peek(now, layers, cost)
		case "take_up_to":
			a = m.TakeUpTo(now, layers, cost)
		default:
			t.Fatalf("line %d: op %q", n+1, l.Op)
		}
		if err := compare(t, l, a, limits); err != nil {
			t.Errorf("line %d: %s: %v", n+1, text, err)
		}
	}
}

func compare(t *testing.T, l line, a model.Answer, limits []string) error {
	w := l.Want
	var deniedBy []string
	for _, i := range a.DeniedBy {
		deniedBy = append(deniedBy, limits[i])
	}
	retry := big.NewInt(0)
	if w.RetryAfter == "never" {
		retry = nil
	} else {
		retry.SetInt64(duration(t, w.RetryAfter))
	}
	delay := int64(0)
	if w.Delay != "" {
		delay = duration(t, w.Delay)
	}
	switch {
	case a.Allowed != w.Allowed, a.Limit != w.Limit, a.Remaining != w.Remaining, a.Taken != w.Taken,
		(a.RetryAfter == nil) != (retry == nil),
		retry != nil && a.RetryAfter.Cmp(retry) != 0,
		a.ResetAfter.Int64() != duration(t, w.ResetAfter),
		a.Delay.Int64() != delay,
		w.DeniedBy != nil && !slices.Equal(w.DeniedBy, deniedBy):
		return fmt.Errorf("got %+v", a)
	}
	return nil
}

func duration(t *testing.T, s string) int64 {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return int64(d)
}

// parse reads the texts that the vectors use: COUNT/PERIOD or every D, then
// options.
func parse(t *testing.T, text string) model.Spec {
	t.Helper()
	words := strings.Fields(text)
	if words[0] == "every" {
		return model.Spec{Kind: model.GCRA, Count: 1, Period: duration(t, words[1]), Burst: 1}
	}
	count, period, _ := strings.Cut(words[0], "/")
	if period[0] < '0' || period[0] > '9' {
		period = "1" + period
	}
	s := model.Spec{Kind: model.GCRA, Count: number(t, count), Period: duration(t, period)}
	s.Burst = s.Count
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "burst":
			i++
			s.Burst = number(t, words[i])
		case "parts":
			i++
			s.Parts = number(t, words[i])
		case "relaxed":
			s.Relaxed = true
		case "count_denied":
			s.CountDenied = true
		default:
			s.Kind = words[i]
		}
	}
	if s.Kind == model.Parts && s.Parts == 0 {
		s.Parts = 60
	}
	return s
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
