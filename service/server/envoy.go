package server

import "net/http"

// envoy answers a rate limit request of Envoy in JSON.
func (h *Handler) envoy(w http.ResponseWriter, r *http.Request) {
	switch {
	case h.o.Envoy == nil:
		notFound("no /json here").write(w)
		return
	case r.Method != http.MethodPost:
		WrongMethod(w, http.MethodPost)
		return
	}
	c := h.calls.Get().(*call)
	defer h.release(c)
	refused := h.admit(w, r, c, false)
	if refused == nil {
		c.body, refused = readBody(c.body, w, r, h.o.MaxBody)
	}
	if refused != nil {
		refused.write(w)
		return
	}
	operator := h.o.Operators.Has(Bearer(r))
	status, answer, err := h.o.Envoy(r.Context(), c.body, operator)
	if err != nil {
		p := problem{status: status, detail: err.Error()}
		p.write(w)
		return
	}
	c.out = append(append(c.out[:0], answer...), '\n')
	c.write(w, status)
}
