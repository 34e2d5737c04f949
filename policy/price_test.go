package policy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stint-dev/stint/policy"
)

// sending gives the attributes of a request with a body of some bytes.
type sending struct {
	policy.Map
	bytes int64
}

func (s sending) BodyLength() int64 { return s.bytes }

// TestPrice charges the greatest of the values that a client gives, times the number of
// answers, plus the length of the body, within bounds, times the price; and settles by the
// price too.
func TestPrice(t *testing.T) {
	const rules = `{"rules":[{"name":"tokens","key":[],"limits":["1_000_000_000/h"],"cost":{"usage":"openai",
		"reserve":{"attribute":["body./max_completion_tokens","body./max_tokens"],"times":"body./n","sent":3,"default":100,"min":16,"max":5000},
		"price":{"by":"body./model","models":{"small":1,"large":10}}}}]}`
	for i, c := range []struct {
		body        policy.Map
		bytes       int64
		cost, seven int64 // when reserved, and when the answer says 7
		estimated   int64 // when it has no usage, and 20 events
		mayNot      string
	}{
		{body: policy.Map{"body./model": "small", "body./max_tokens": "1", "body./max_completion_tokens": "800"}, cost: 800, seven: 7, estimated: 800},
		{body: policy.Map{"body./model": "large", "body./max_tokens": "1", "body./n": "4"}, bytes: 31, cost: 160, seven: 70, estimated: 200},
		{body: policy.Map{"body./model": "large", "body./max_tokens": "2", "body./n": "0"}, bytes: 100, cost: 360, seven: 70, estimated: 360},
		{body: policy.Map{"body./model": "small"}, bytes: 30, cost: 110, seven: 7, estimated: 110},
		{body: policy.Map{"body./model": "large", "body./max_tokens": "9223372036854775807", "body./n": "9"}, bytes: 1, cost: 50_000, seven: 70, estimated: 50_000},
		{body: policy.Map{"body./model": "small", "body./max_tokens": "x"}, mayNot: "policy: body./max_tokens of the request: the cost is not a whole number"},
		{body: policy.Map{"body./model": "Small"}, mayNot: "policy: body./model of the request: it has no price here: there is small, large"},
		{body: policy.Map{}, mayNot: "policy: body./model of the request: it has no price here: there is small, large"},
	} {
		synctest.Test(t, func(t *testing.T) {
			for text, want := range map[string]int64{`data: {"usage":{"total_tokens":7}}` + "\n\n": c.seven, strings.Repeat("data: {}\n\n", 20): c.estimated} {
				p, r := inFlight(t, rules), new(policy.Result)
				pending, _, err := p.Begin(t.Context(), sending{c.body, c.bytes}, 1, false, -1, r)
				if c.mayNot != "" {
					if !errors.Is(err, policy.ErrRequest) || err.Error() != c.mayNot {
						t.Errorf("%d: %v", i, err)
					}
					continue
				}
				if err != nil || r.Rules[0].Cost != c.cost {
					t.Errorf("%d: %+v, %v", i, r.Rules, err)
					continue
				}
				_ = pending.Header(t.Context(), 200, nil)
				_, _ = fmt.Fprint(pending, text)
				if err := pending.End(context.Background(), true); err != nil {
					t.Error(err)
				}
				used, err := p.UsedOf(t.Context(), "tokens", "")
				if err != nil || used[0].Limit.Count()-used[0].Remaining != want {
					t.Errorf("%d: %.30q has cost %d, want %d, %v", i, text, used[0].Limit.Count()-used[0].Remaining, want, err)
				}
			}
		})
	}
}

// TestEstimate charges the estimate of a body only where the response has no usage.
func TestEstimate(t *testing.T) {
	const ten = "data: {}\n\ndata: {}\n\n: ping\n\ndata: {}\n\ndata: {}\n\ndata: {}\n\ndata: {}\n\ndata: {}\n\ndata: {}\n\ndata: {}\n\ndata: {}\n\ndata: [DONE]\n\n"
	for name, c := range map[string]struct {
		cost, body string
		status     int
		whole      bool
		want       int64
	}{
		"events":          {`"usage":"openai","reserve":3`, ten, 200, true, 10},
		"broken off":      {`"usage":"openai","reserve":3`, ten[:33], 200, false, 3},
		"further":         {`"usage":"openai","reserve":3`, ten[:80], 200, false, 7},
		"below":           {`"usage":"openai","reserve":30`, ten, 200, true, 30},
		"a failure":       {`"usage":"openai","reserve":3`, ten, 500, true, 3},
		"missing":         {`"usage":"openai","reserve":3,"missing":1`, ten, 200, true, 1},
		"missing, broken": {`"usage":"openai","reserve":3,"missing":1`, ten[:80], 200, false, 7},
		"more, broken":    {`"usage":"openai","reserve":3,"missing":9`, ten[:80], 200, false, 9},
		"part, broken":    {`"usage":"anthropic","reserve":3,"missing":500`, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":20,\"output_tokens\":1}}}\n\n", 200, false, 500},
		"none, broken":    {`"usage":"openai","reserve":3,"missing":0`, "", 200, false, 3},
		"pointers":        {`"response":"/usage/total_tokens","reserve":3`, ten, 200, true, 3},
		"JSON":            {`"usage":"anthropic","reserve":3`, `{"text":"` + strings.Repeat("x", 60) + `"}`, 200, true, 18},
		"lines":           {`"usage":"ollama","reserve":1`, strings.Repeat(`{"response":"x"}`+"\n", 9), 200, false, 9},
		"ollama":          {`"usage":"ollama","reserve":1`, `{"response":"x"}` + "\n" + `{"done":true,"prompt_eval_count":3,"eval_count":4}`, 200, true, 7},
		"gemini":          {`"usage":"gemini","reserve":1`, "data: {\"usageMetadata\":{\"totalTokenCount\":5}}\r\n\r\ndata: {\"usageMetadata\":{\"totalTokenCount\":9}}\r\n\r\n", 200, true, 9},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, r := inFlight(t, `{"rules":[{"name":"tokens","key":[],"limits":["1000/h"],"cost":{`+c.cost+`}}]}`), new(policy.Result)
			pending, _, err := p.Begin(t.Context(), policy.Map{}, 1, false, -1, r)
			if err != nil {
				t.Fatal(err)
			}
			_ = pending.Header(t.Context(), c.status, nil)
			for i := range len(c.body) {
				_, _ = fmt.Fprint(pending, c.body[i:i+1])
			}
			_ = pending.End(context.Background(), c.whole)
			used, err := p.UsedOf(t.Context(), "tokens", "")
			if got := used[0].Limit.Count() - used[0].Remaining; err != nil || got != c.want {
				t.Errorf("%s has cost %d, want %d, %v", name, got, c.want, err)
			}
		})
	}
}
