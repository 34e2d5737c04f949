package proxy_test

import (
	"fmt"
	"io"
	"strings"
)

// A shape is a form in which model servers answer.
type shape struct {
	dialect string // of the rule's usage
	event   string // of what is around each piece: "" for pieces of one document
	begin   string
	piece   string             // of the token %d
	usage   func(n int) string // says what n tokens have cost
	end     string
	atFirst int  // the usage that the beginning tells
	running bool // whether each piece tells the usage so far, instead of usage at the end
	asked   bool // whether streams have usage only if the request asks for it
}

// prompt is what a request costs beside the tokens of its answer.
const prompt = 9

const (
	data = "data: %s\n\n"
	line = "%s\n"
	part = "%s\n " // of an array
)

// says returns a function that writes numbers of an answer: the sum, or the tokens alone.
func says(format string, sum bool) func(int) string {
	return func(n int) string {
		if sum {
			n += prompt
		}
		return fmt.Sprintf(format, n)
	}
}

// shapes are all shapes for which stint has a name.
var shapes = map[string]shape{
	"chat stream": {dialect: "openai", event: data, piece: `{"choices":[{"delta":{"content":"t%d \"usage\":{"}}],"usage":null}`,
		usage: says(`{"choices":[],"usage":{"total_tokens":%d}}`, true), end: "data: [DONE]\n\n", asked: true},
	"completions stream": {dialect: "openai", event: data, piece: `{"choices":[{"text":"t%d"}]}`,
		usage: says(`{"choices":[],"usage":{"prompt_tokens":9,"total_tokens":%d}}`, true), end: "data: [DONE]\n\n", asked: true},
	"responses stream": {dialect: "openai", event: "event: x\n" + data, begin: `{"type":"response.created","response":{"usage":null}}`, piece: `{"type":"response.output_text.delta","delta":"t%d"}`,
		usage: says(`{"type":"response.completed","response":{"usage":{"input_tokens":9,"total_tokens":%d}}}`, true)},
	"chat": {dialect: "openai", begin: `{"choices":[{"message":{"content":"\"usage\":{`, piece: `\"t%d `,
		usage: says(`"}}],"usage":{"total_tokens":%d}`, true), end: `}`},
	"completions": {dialect: "openai", begin: `{"choices":[{"text":"`, piece: `\"t%d `,
		usage: says(`"}],"usage":{"total_tokens":%d}`, true), end: `}`},
	"responses": {dialect: "openai", begin: `{"object":"response","output":[{"content":[{"text":"`, piece: `\"t%d `,
		usage: says(`"}]}],"usage":{"total_tokens":%d,"output_tokens":4}`, true), end: `}`},
	"embeddings": {dialect: "openai", begin: `{"object":"list","data":[{"embedding":["t0"`, piece: `,"t%d"`,
		usage: says(`]}],"usage":{"prompt_tokens":1,"total_tokens":%d}`, true), end: `}`},
	"messages stream": {dialect: "anthropic", event: "event: x\n" + data, begin: `{"message":{"usage":{"input_tokens":9,"output_tokens":1}}}`, atFirst: prompt + 1,
		piece: `{"type":"content_block_delta","delta":{"text":"t%d"}}`, usage: says(`{"usage":{"output_tokens":%d}}`, false), end: "event: message_stop\ndata: {}\n\n"},
	"messages": {dialect: "anthropic", begin: `{"content":[{"text":"`, piece: `\"t%d `,
		usage: says(`"}],"usage":{"input_tokens":9,"output_tokens":%d}`, false), end: `}`},
	"generate stream": {dialect: "gemini", event: data, piece: `{"candidates":[{"text":"t%d"}],"usageMetadata":{"totalTokenCount":%d}}`, running: true},
	"generate array":  {dialect: "gemini", event: part, begin: `[{"candidates":[{"content":"` + strings.Repeat("x", 400) + `"}]}`, piece: `,{"candidates":[{"text":"t%d"}],"usageMetadata":{"totalTokenCount":%d}}`, running: true, end: `]`},
	"generate": {dialect: "gemini", begin: `{"candidates":[{"content":{"parts":[{"text":"`, piece: `\"t%d `,
		usage: says(`"}]}}],"usageMetadata":{"promptTokenCount":9,"totalTokenCount":%d}`, true), end: `}`},
	"ollama generate": {dialect: "ollama", event: line, piece: `{"response":"t%d","done":false}`,
		usage: says(`{"done":true,"prompt_eval_count":9,"eval_count":%d}`, false)},
	"ollama chat": {dialect: "ollama", event: line, piece: `{"message":{"content":"t%d"},"done":false}`,
		usage: says(`{"message":{"content":""},"done":true,"prompt_eval_count":9,"eval_count":%d}`, false)},
	"ollama whole": {dialect: "ollama", begin: `{"message":{"content":"`, piece: `\"t%d `,
		usage: says(`"},"done":true,"prompt_eval_count":9,"eval_count":%d`, false), end: `}`},
}

// tell returns an answer of a number of tokens in a shape.
func tell(form string, tokens int, usage, ends bool) (s said) {
	is := shapes[form]
	add := func(piece string) {
		if is.event != "" {
			piece = fmt.Sprintf(is.event, piece)
		}
		s.pieces = append(s.pieces, piece)
	}
	if is.begin != "" {
		add(is.begin)
		s.usage = is.atFirst
	}
	for i := range tokens {
		if is.running {
			s.usage = i + 1 + prompt
			add(fmt.Sprintf(is.piece, i, s.usage))
		} else {
			add(fmt.Sprintf(is.piece, i))
		}
	}
	if usage && !is.running {
		s.usage = tokens + prompt
		add(is.usage(tokens))
	}
	s.whole = ends && s.usage > is.atFirst
	if ends {
		s.pieces = append(s.pieces, is.end)
	}
	return s
}

// deliver writes an answer in one of six ways.
func deliver(w io.Writer, flush func(), s said, way int) {
	text := strings.Join(s.pieces, "")
	switch way {
	case 0: // as it is made
		for _, piece := range s.pieces {
			_, _ = io.WriteString(w, piece)
			flush()
		}
		return
	case 1: // all at once
		_, _ = io.WriteString(w, text)
		return
	case 2:
		text = strings.ReplaceAll(text, "\n", "\r\n")
	case 3:
		text = strings.ReplaceAll(text, "data:", ": ping\n\ndata:")
	case 4:
		text = strings.ReplaceAll(text, "data: ", "data:")
	}
	for len(text) > 0 { // cut anywhere
		n := min(1+way*7, len(text))
		_, _ = io.WriteString(w, text[:n])
		text = text[n:]
		flush()
	}
}
