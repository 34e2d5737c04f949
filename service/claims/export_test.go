package claims

// Kept returns how many results are kept, and how many bytes they are counted with.
func Kept(s *Source) (results, bytes int) {
	k := &s.now.Load().keys.Load().kept
	return len(k.of), k.bytes
}
