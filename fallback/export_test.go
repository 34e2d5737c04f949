package fallback

// Held is how many limits are remembered.
func (s *Shares) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.divided)
}
