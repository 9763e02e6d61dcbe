package store

// Healthy says why the store takes no more writes; nil as long as it does.
func (s *Store) Healthy() error {
	s.seq.Lock()
	defer s.seq.Unlock()
	return s.refused
}
