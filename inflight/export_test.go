package inflight

// SetMostLeases sets how many leases the room holds.
func (r *Room) SetMostLeases(n int) { r.mostLeases = n }
