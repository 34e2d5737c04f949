package accesslog

// Shapes returns the text formats that are recognised, each with a line of it.
func Shapes() (all []struct{ Name, Example string }) {
	for _, s := range shapes {
		all = append(all, struct{ Name, Example string }{s.name, s.example})
	}
	return all
}
