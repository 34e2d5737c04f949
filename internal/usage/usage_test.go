package usage_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/usage"
)

func spec(t testing.TB, pointers ...string) *usage.Spec {
	s, err := usage.Parse(pointers...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reader writes a body in pieces of a length.
func reader(s *usage.Spec, body string, each int) *usage.Reader {
	r := usage.New(s)
	for len(body) > 0 {
		n := min(each, len(body))
		r.Write([]byte(body[:n]))
		body = body[n:]
	}
	return r
}

func read(s *usage.Spec, body string, each int) (int64, bool) { return reader(s, body, each).Sum() }

const none = -1

func TestRead(t *testing.T) {
	total := []string{"/usage/total_tokens"}
	for _, c := range []struct {
		name     string
		pointers []string
		body     string
		want     int64
	}{
		{"a body", total, `{"id":"x","usage":{"prompt_tokens":9,"total_tokens":21}}`, 21},
		{"blanks", total, "\ufeff \r\n{ \"usage\" :\n{ \"total_tokens\"\t: 21 } }", 21},
		{"no such field", total, `{"usage":{"tokens":21}}`, none},
		{"null", total, `{"usage":null}`, none},
		{"a text", total, `{"usage":{"total_tokens":"21"}}`, none},
		{"an object", total, `{"usage":{"total_tokens":{"total_tokens":21}}}`, none},
		{"deeper", total, `{"x":{"usage":{"total_tokens":21}},"y":[{"usage":{"total_tokens":22}}]}`, none},
		{"in a text", total, `{"content":"{\"usage\":{\"total_tokens\":21}}"}`, none},
		{"a text with a backslash at its end", total, `{"content":"\\","usage":{"total_tokens":21}}`, 21},
		{"a text of quotes", total, `{"content":"\"\"\\\"","usage":{"total_tokens":21}}`, 21},
		{"an escaped name", total, `{"\u0075s\u0061ge":{"total\u005ftokens":21}}`, 21},
		{"a long name", total, `{"` + strings.Repeat("usage", 1000) + `":1,"usage":{"total_tokens":21}}`, 21},
		{"twice", total, `{"usage":{"total_tokens":21,"total_tokens":22}}`, 22},
		{"behind a list", total, `{"a":[1,{"b":[]},"]"],"usage":{"total_tokens":21}}`, 21},
		{"lines of JSON", total, "{\"usage\":{\"total_tokens\":1}}\n{\"usage\":{\"total_tokens\":2}}\n", 2},
		{"cut", total, `{"usage":{"total_tokens":2`, none},
		{"negative", total, `{"usage":{"total_tokens":-2}}`, none},
		{"a fraction", total, `{"usage":{"total_tokens":2.1}}`, 3},
		{"with an exponent", total, `{"usage":{"total_tokens":2e2}}`, 200},
		{"too large", total, `{"usage":{"total_tokens":1e30}}`, math.MaxInt64},
		{"too long", total, `{"usage":{"total_tokens":` + strings.Repeat("1", 50) + `}}`, none},
		{"added", []string{"/a", "/b/c"}, `{"a":1,"b":{"c":2}}`, 3},
		{"added, one missing", []string{"/a", "/b/c"}, `{"a":1}`, 1},
		{"an element", []string{"/a/1/n"}, `{"a":[{"n":1},{"n":2},{"n":3}]}`, 2},
		{"a list at the top", []string{"/1"}, `[7,8,9]`, 8},
		{"a list of documents", total, `[{"usage":{"total_tokens":7}}` + "\n, " + `{"usage":{"total_tokens":9},"a":[1,{}]}, 3, "]", [{}], {}]`, 9},
		{"a list in a list", total, `[[{"usage":{"total_tokens":7}}]]`, none},
		{"lists", total, `[7,{"usage":{"total_tokens":7}}][[],{"usage":{"total_tokens":8}}]{"usage":{"total_tokens":9}}`, 9},
		{"a list whose elements the pointer names", []string{"/0/n", "/n"}, `[{"n":7},{"n":8}]`, 7},
		{"a slash and a tilde", []string{"/a~1b/~0"}, `{"a/b":{"~":5}}`, 5},
		{"nothing", total, ``, none},
		{"text", total, `no JSON`, none},

		{"events of lists", total, "data: [{\"usage\":\n\ndata: [{\"usage\":{\"total_tokens\":21}}]\n\n", 21},
		{"events", total, "data: {\"usage\":null}\n\ndata: {\"usage\":{\"total_tokens\":21}}\n\ndata: [DONE]\n\n", 21},
		{"the last event", total, "data: {\"usage\":{\"total_tokens\":1}}\n\ndata: {\"usage\":{\"total_tokens\":2}}\n\n", 2},
		{"CRLF", total, "data: {\"usage\":{\"total_tokens\":21}}\r\n\r\ndata: [DONE]\r\n\r\n", 21},
		{"CR", total, "data: {\"usage\":{\"total_tokens\":21}}\r\rdata: [DONE]\r\r", 21},
		{"an event of lines", total, "data: {\"usage\":\ndata: {\"total_tokens\":\ndata:21}}\n\n", 21},
		{"a number that the lines cut", total, "data: {\"usage\":{\"total_tokens\":2\ndata: 1}}\n\n", 2},
		{"comments", total, ": {\"usage\":{\"total_tokens\":9}}\n:\nevent: x\nid: 1\ndata:{\"usage\":{\"total_tokens\":21}}\n\n", 21},
		{"other fields", total, "datum: {\"usage\":{\"total_tokens\":9}}\ndat: {\"usage\":{\"total_tokens\":9}}\n data: {\"usage\":{\"total_tokens\":9}}\n\n", none},
		{"a field without a colon", total, "data\ndata: {\"usage\":{\"total_tokens\":21}}\n\n", 21},
		{"a broken event", total, "data: {\"usage\":{\n\ndata: {\"usage\":{\"total_tokens\":21}}\n\n", 21},
		{"an event that is not ended", total, "data: {\"usage\":{\"total_tokens\":21}}", 21},
		{"a number that is not ended", total, "data: {\"usage\":{\"total_tokens\":21", none},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := spec(t, c.pointers...)
			for each := 1; each <= len(c.body)+1; each++ {
				got, ok := read(s, c.body, each)
				if !ok {
					got = none
				}
				if got != c.want {
					t.Fatalf("pieces of %d: %d, want %d", each, got, c.want)
				}
			}
		})
	}
}

// TestNamed reads answers in the shapes that providers document.
func TestNamed(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       int64
	}{
		{"openai", `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`, 21},
		{"openai", `{"object":"response","output":[],"usage":{"input_tokens":36,"output_tokens":87,"total_tokens":123}}`, 123},
		{"openai", "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n" +
			"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":36,\"output_tokens\":87,\"total_tokens\":123}}}\n\n", 123},
		{"anthropic", `{"type":"message","content":[{"type":"text","text":"Hi"}],"usage":{"input_tokens":2095,"cache_creation_input_tokens":5,"cache_read_input_tokens":7000,"output_tokens":503}}`, 2603},
		{"anthropic", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n" +
			"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n", 40},
		{"anthropic", "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":2679,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":3}}}\n\n" +
			"data: {\"type\":\"message_delta\",\"usage\":{\"input_tokens\":10682,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":510}}\n\n", 11192},
	} {
		s, ok := usage.Named(c.name)
		if !ok {
			t.Fatal(c.name)
		}
		for each := 1; each <= len(c.body); each++ {
			if got, ok := read(s, c.body, each); !ok || got != c.want {
				t.Fatalf("%s, pieces of %d: %d, want %d", c.body, each, got, c.want)
			}
		}
	}
}

// TestEnded looks for the end that a body announces itself.
func TestEnded(t *testing.T) {
	for body, want := range map[string]bool{
		"data: {\"usage\":{\"total_tokens\":21}}\n\n":                 false,
		"data: {\"usage\":{\"total_tokens\":21}}\n\ndata: [DONE]\n\n": true,
		"data:[DONE]\r\n":   true,
		"data: [DONE]x\n\n": false,
		"data: x[DONE]\n\n": false,
		"event: [DONE]\n\n": false,
		"data: {\"response\":{\"usage\":{\"total_tokens\":21}}}\n\n": true,
	} {
		for each := 1; each <= len(body); each++ {
			s, _ := usage.Named("openai")
			if reader(s, body, each).Ended() != want {
				t.Errorf("%q in pieces of %d: %v", body, each, !want)
			}
		}
	}
}

// TestEstimate: a piece of a stream costs a unit as soon as it begins, or a line when it has ended.
func TestEstimate(t *testing.T) {
	s, _ := usage.Named("gemini")
	long := `{"text": "][},{` + strings.Repeat("x", 100) + `",` + "\n" + `"list": [[], [1, {"a": 2}], "],"]}`
	for body, want := range map[string]int64{
		`[`:                           1,
		`[` + long:                    1,
		" [\r\n" + long + "\r\n]\r\n": 1,
		`[` + long + `,` + long:       2,
		`[` + long + ",\n[" + long + `,1],7, "],"]`: 4,
		`{` + `"a":` + long + `}`:                   int64(len(long)+6+3) / 4,
		`{` + `"a":` + long + "}\n{}\n{":            2,
		"data: " + long[:60]:                        1,
		"data: {}\n\n: x\n\ndata: " + `[{},`:        2,
		"data: [DONE]\n\n":                          0,
		"Four score and seven years ago":            8,
		"a\n\nb: c\n":                               2,
		strings.Repeat("\n", 900) + `{"a": 1}`:      2,
	} {
		for each := 1; each <= len(body); each++ {
			if got := reader(s, body, each).Estimate(int64(len(body))); got != want {
				t.Fatalf("%q in pieces of %d: %d, want %d", body, each, got, want)
			}
		}
	}
}

// TestEstimateStream: comments and fields of events are no text; and when Anthropic has told the prompt
// alone, the estimate is the prompt and an event for each piece since.
func TestEstimateStream(t *testing.T) {
	start := `data: {"message":{"usage":{"input_tokens":1000,"cache_creation_input_tokens":20,"output_tokens":1}}}` + "\n\n"
	for body, want := range map[string]int64{
		strings.Repeat(": PROCESSING\n\n", 300): 0,
		"retry: 3000\n\nevent: ping\n\n: x":     0,
		": x\n\ndata: {}\n\n":                   1,
		`{"a": "` + strings.Repeat("x", 93):     25,
		strings.Repeat("a word\n", 400):         700,
		strings.Repeat(`0:"word"`+"\n", 300):    675,
		`"` + strings.Repeat("x", 399):          100,
		`{"message":{"usage":{"input_tokens":5,"output_tokens":1}},"t":"` + strings.Repeat("x", 337):    105,
		`data: {"message":{"usage":{"input_tokens":100}}}` + "\n\n" + strings.Repeat("data: {}\n\n", 9): 110,
		start: 1021,
		start + strings.Repeat("data: {}\n\n", 900):                               1921,
		start + "data: {}\n\n" + `data: {"usage":{"output_tokens":700}}` + "\n\n": 3,
	} {
		s, _ := usage.Named("anthropic")
		for _, each := range []int{1, 7, len(body)} {
			if got := reader(s, body, each).Estimate(int64(len(body))); got != want {
				t.Errorf("%.80q in pieces of %d: %d, want %d", body, each, got, want)
			}
		}
	}
}

func TestParse(t *testing.T) {
	for _, bad := range []string{"", "usage", "/a~2", "/a~", "/" + strings.Repeat("a", usage.MaxPointer)} {
		if _, err := usage.Parse(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	if _, err := usage.Parse(); err == nil {
		t.Error("no pointers: no error")
	}
	if _, err := usage.Parse(strings.Split(strings.Repeat("/a ", usage.MaxPointers+1), " ")...); err == nil {
		t.Error("too many: no error")
	}
}

// TestModel compares with encoding/json on random documents, alone and as events.
func TestModel(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	names := []string{"a", "b", "usage", "ü", "a\"b"}
	var value func(depth int) any
	value = func(depth int) any {
		switch k := random.IntN(8); {
		case k < 3 && depth > 0:
			m := make(map[string]any)
			for range random.IntN(4) {
				m[names[random.IntN(len(names))]] = value(depth - 1)
			}
			return m
		case k < 4 && depth > 0:
			var list []any
			for range random.IntN(4) {
				list = append(list, value(depth-1))
			}
			return list
		case k < 6:
			return random.IntN(1000)
		case k == 6:
			return []string{"", "x\\\"{", "\n\r", "}]", "ü"}[random.IntN(5)]
		}
		return nil
	}
	for range 3000 {
		pointers := make([]string, 1+random.IntN(3))
		for i := range pointers {
			for range 1 + random.IntN(3) {
				if random.IntN(4) == 0 {
					pointers[i] += fmt.Sprint("/", random.IntN(3))
				} else {
					pointers[i] += "/" + names[random.IntN(len(names))]
				}
			}
		}
		var want int64
		last, body, sse := make(map[int]int64), "", random.IntN(2) == 0
		for range 1 + random.IntN(4) {
			doc := map[string]any{"a": value(3), "usage": value(3), "b": value(2)}
			text, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			if body += string(text); sse {
				body = strings.TrimSuffix(body, string(text)) + "data: " + string(text) + "\n\n"
			}
			for i, p := range pointers {
				if n, ok := walk(doc, strings.Split(p[1:], "/")); ok {
					last[i] = n
				}
			}
		}
		for _, n := range last {
			want += n
		}
		got, ok := read(spec(t, pointers...), body, 1+random.IntN(len(body)))
		if got != want || ok != (len(last) > 0) {
			t.Fatalf("%q in %s: %d, %v; want %d", pointers, body, got, ok, want)
		}
	}
}

// walk returns the value of a pointer, by the definition of pointers.
func walk(v any, path []string) (int64, bool) {
	if len(path) == 0 {
		n, ok := v.(int)
		return int64(n), ok
	}
	switch v := v.(type) {
	case map[string]any:
		if next, ok := v[path[0]]; ok {
			return walk(next, path[1:])
		}
	case []any:
		for i, next := range v {
			if fmt.Sprint(i) == path[0] {
				return walk(next, path[1:])
			}
		}
	}
	return 0, false
}

// FuzzChunks: a body has the same numbers however it is cut.
func FuzzChunks(f *testing.F) {
	f.Add([]byte(`{"usage":{"total_tokens":21},"a":[1,{"b":2}]}`), uint8(3))
	f.Add([]byte(`[{"usage":{"total_tokens":21}},[3],7,{"a":1}]`), uint8(2))
	f.Add([]byte("data: {\"usage\":{\"total_tokens\":21}}\r\n\r\ndata: [DONE]\r\r"), uint8(1))
	f.Add([]byte(": \xe4\xf6\n\ndata: {\"\\u0061\":[1,2e3]}\n\n"), uint8(2))
	f.Add([]byte("data: {\"usage\":\r{}\r\n\ndata: {\r\n\r\ndata: {\"usage\":{\"total_tokens\":\rdata: 3}}\n\n\r\ndata: [DONE]\r\n\n"), uint8(0))
	f.Fuzz(func(t *testing.T, body []byte, each uint8) {
		named, _ := usage.Named("openai") // of which whole events are passed over
		for _, s := range []*usage.Spec{spec(t, "/usage/total_tokens", "/a/1/b", "/a", "/0"), named} {
			says := func(each int) string {
				r := reader(s, string(body), each)
				sum, ok := r.Sum()
				return fmt.Sprint(sum, ok, r.Ended(), r.Open(), r.Estimate(int64(len(body))))
			}
			for _, each := range []int{1, int(each) + 1} {
				if got, whole := says(each), says(len(body)+1); got != whole {
					t.Errorf("%q in pieces of %d: %s; whole %s", body, each, got, whole)
				}
			}
		}
	})
}

// TestManyNames: the time for many short events with a name does not grow with the size of a write. If
// it did, this test would time out.
func TestManyNames(t *testing.T) {
	s, _ := usage.Named("anthropic")
	r := usage.New(s)
	event := "data: {\"usage\":{\"output_tokens\":3}}\n\n"
	_, _ = r.Write([]byte(strings.Repeat(event, 16<<20/len(event))))
	if sum, ok := r.Sum(); !ok || sum != 3 {
		t.Errorf("%d %v", sum, ok)
	}
}
