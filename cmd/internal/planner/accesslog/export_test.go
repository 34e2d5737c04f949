package accesslog

// Shapes returns the formats that errors show, each with a line of it.
func Shapes() (all []struct{ Name, Example string }) {
	for _, s := range append(append([]shape{}, examples...), shapes...) {
		all = append(all, struct{ Name, Example string }{s.name, s.example})
	}
	return all
}
