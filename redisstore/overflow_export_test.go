package redisstore

// Flood spends the budget for new keys for good.
func (s *Store) Flood() { s.byRoom, s.newKeys.unit = false, 2*int64(newKeysWindow) }

// Cells is how many overflow keys a limit has at most outside of clusters.
const Cells = overflowCells

// Budget is the budget for new keys by itself.
type Budget = budget

// NewBudget, Spent and Spend make one, ask it and take from it.
var NewBudget = newBudget

func (b *budget) Spent(now int64) bool  { return b.spent(now) }
func (b *budget) Spend(now, keys int64) { b.spend(now, keys) }
