package otlp

import "net/http"

// Through has an exporter send by way of something else than the network.
func (e *Exporter) Through(way http.RoundTripper) { e.client.Transport = way }
