package server

import "time"

// A CheckRequest is a check as it was read, for the tests.
type CheckRequest struct {
	Attributes  map[string]string
	Cost        int64
	TTL         time.Duration
	Reservation string
}

// ReadCheckRequests reads the body of a verb.
func ReadCheckRequests(path, body string, most int) ([]CheckRequest, error) {
	v := verbs[path]
	if !v.batch {
		most = 0
	}
	var q checkRequests
	if err := q.read(body, v.may, v.must, most); err != nil {
		return nil, err
	}
	list := q.list
	if !q.batch() {
		list = []checkRequest{q.one}
	}
	var all []CheckRequest
	for _, a := range list {
		one := CheckRequest{Attributes: map[string]string{}, Cost: a.cost, TTL: a.ttl, Reservation: a.reservation}
		for _, attribute := range a.attributes {
			one.Attributes[attribute.name] = attribute.value
		}
		all = append(all, one)
	}
	return all, nil
}

// Verbs returns the paths that take a body.
func Verbs() (paths []string) {
	for path := range verbs {
		paths = append(paths, path)
	}
	return paths
}

// Count returns how many connections there are.
func (c *Conns) Count() int {
	c.bounds.mu.Lock()
	defer c.bounds.mu.Unlock()
	return c.bounds.all
}

// Wholes returns how much bodies take that are kept before their requests are served.
func Wholes() int64 { return wholes.Load() }
