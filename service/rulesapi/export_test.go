package rulesapi

// Endpoints returns how many there are.
func Endpoints() int { return len(endpoints) }
