package model

import "math/big"

// interval is "token_bucket_interval": at each whole multiple of the period
// since the epoch Count tokens are added, up to Burst.
type interval struct {
	spec    Spec
	missing *big.Int // tokens short of Burst, at index
	index   *big.Int // the period that missing was written in
}

func (b *interval) limitOf() Spec { return b.spec }
func (b *interval) most() int64   { return b.spec.Burst }

// indexOf is the number of refills since the epoch, at t.
func (b *interval) indexOf(t *big.Int) *big.Int {
	return floorDiv(t, big.NewInt(b.spec.Period))
}

// since is what is left at t of n tokens that were missing at an index.
func (b *interval) since(t, n, index *big.Int) *big.Int {
	refills := sub(b.indexOf(t), index)
	return lessUpTo(n, mul(refills, big.NewInt(b.spec.Count)))
}

// missingAt is how many tokens are missing at t.
func (b *interval) missingAt(t *big.Int) *big.Int { return b.since(t, b.missing, b.index) }

// admits: c ≤ tokens.
func (b *interval) admits(t *big.Int, c int64) bool {
	tokens := sub(big.NewInt(b.spec.Burst), b.missingAt(t))
	return big.NewInt(c).Cmp(tokens) <= 0
}

func (b *interval) charge(t *big.Int, c int64) receipt {
	deepest := mul(big.NewInt(2), big.NewInt(b.spec.Burst))
	b.write(t, least(add(b.missingAt(t), big.NewInt(c)), deepest))
	return receipt{at: t, missing: b.missing}
}

// write sets what is missing, as of t.
func (b *interval) write(t, missing *big.Int) {
	b.missing, b.index = missing, b.indexOf(t)
}

func (b *interval) resetAfter(t *big.Int) *big.Int {
	missing := b.missingAt(t)
	if missing.Sign() == 0 {
		return new(big.Int)
	}
	refills := ceilDiv(missing, big.NewInt(b.spec.Count))
	full := mul(add(b.indexOf(t), refills), big.NewInt(b.spec.Period))
	return sub(full, t)
}

func (b *interval) delay(*big.Int) *big.Int { return new(big.Int) }

func (b *interval) giveBack(t *big.Int, r receipt, g int64) {
	left := b.since(t, r.missing, b.indexOf(r.at)) // what refills have not yet forgiven
	b.write(t, lessUpTo(b.missingAt(t), least(big.NewInt(g), left)))
}

func (b *interval) refund(t *big.Int, c int64) {
	b.write(t, lessUpTo(b.missingAt(t), big.NewInt(c)))
}

// become keeps the share of a full refill time: what is missing is scaled by
// the ratio of the rates, rounded up, and is at most the new burst.
func (b *interval) become(t *big.Int, to Spec) state {
	scale := new(big.Rat).Quo(ratio(to.Count, to.Period), ratio(b.spec.Count, b.spec.Period))
	missing := ceil(scale.Mul(scale, whole(b.missingAt(t))))
	changed := &interval{spec: to}
	changed.write(t, least(missing, big.NewInt(to.Burst)))
	return changed
}
