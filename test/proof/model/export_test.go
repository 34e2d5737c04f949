package model

import (
	"fmt"
	"math/big"
)

// Tight says whether retryAfter (ns; nil means never) is the least wait after
// which cost passes in every layer, from t on, if nothing else arrives: at
// t + retryAfter it passes, a nanosecond earlier it does not. It changes
// nothing but the clock. The error says what does not hold.
func (m *Model) Tight(t int64, layers []Layer, cost int64, retryAfter *big.Int) error {
	now, parts := m.begin(t, layers, cost)
	if retryAfter == nil {
		for _, p := range parts {
			if p.units(cost).Cmp(big.NewInt(p.most())) > 0 {
				return nil
			}
		}
		return fmt.Errorf("cost %d can pass, but retry_after is never", cost)
	}
	if retryAfter.Sign() < 0 {
		return fmt.Errorf("retry_after is %v ns", retryAfter)
	}
	at := add(now, retryAfter)
	if denied := deniers(at, parts, cost); len(denied) > 0 {
		return fmt.Errorf("cost %d does not pass after %v ns: layers %v deny", cost, retryAfter, denied)
	}
	before := sub(at, big.NewInt(1))
	if retryAfter.Sign() > 0 && len(deniers(before, parts, cost)) == 0 {
		return fmt.Errorf("cost %d passes before %v ns have gone by", cost, retryAfter)
	}
	return nil
}
