package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// ReadJSON reads a JSON body of at most most bytes. Unknown fields and fields given twice
// are errors. It returns the status and the text of an error, or 0.
func ReadJSON(w http.ResponseWriter, r *http.Request, most int64, into any) (status int, detail string) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err == nil {
		err = decode(data, into)
	}
	if err == nil {
		return 0, ""
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return http.StatusRequestEntityTooLarge, "the body is too large"
	}
	return http.StatusBadRequest, "the body: " + err.Error()
}

// WriteJSON answers with a value as a line of JSON.
func WriteJSON(w http.ResponseWriter, status int, answer any) {
	head := w.Header()
	head.Set("Content-Type", "application/json")
	head.Set("Cache-Control", "no-store")
	head.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(answer) // a client that has gone needs no answer
}

func decode(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("something follows the JSON")
	}
	return checkNames(json.NewDecoder(bytes.NewReader(data)))
}

// checkNames fails if a field of a valid object is there twice or not in lower case:
// encoding/json ignores the case of names, and takes the last of several.
func checkNames(decoder *json.Decoder) error {
	if start, _ := decoder.Token(); start != json.Delim('{') {
		return nil
	}
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		name, _ := token.(string)
		switch {
		case err != nil:
			return err
		case strings.ToLower(strings.ToUpper(name)) != name:
			return fmt.Errorf("unknown field %q: names are in lower case", name)
		case seen[name]:
			return fmt.Errorf("field %q twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return err
		}
	}
	return nil
}
