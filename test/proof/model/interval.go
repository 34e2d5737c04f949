package model

import "math/big"

// interval is "token_bucket_interval": at each whole multiple of the period
// since the epoch Count tokens are added, up to Burst.
type interval struct {
	spec    Spec
	missing *big.Int // tokens short of Burst, at index
	index   *big.Int // the period that missing was written in
	first   tokens   // before the history
	past    history
}

// tokens is how many were missing at an index; nil for none.
type tokens struct{ missing, index *big.Int }

func (b *interval) limitOf() Spec { return b.spec }
func (b *interval) compare(Spec)  {} // it has numbers of its own
func (b *interval) most() int64   { return b.spec.full() }

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

func (b *interval) charge(t *big.Int, c int64, how charging) receipt {
	if !how.open {
		b.settle() // nothing can change what is past
	}
	r := b.past.charged(t, c, how)
	if b.pour(t, c) {
		b.settle()
	}
	return r
}

// settle makes the state as it is one that nothing changes any more: charges
// before it give nothing back.
func (b *interval) settle() {
	b.first = tokens{b.missing, b.index}
	b.past = history{term: b.past.term + 1}
}

// pour takes c tokens, and reports whether that was cut off at the deepest debt.
func (b *interval) pour(t *big.Int, c int64) (cut bool) {
	deepest := b.spec.deepest()
	after := add(b.missingAt(t), big.NewInt(c))
	b.write(t, least(after, deepest))
	return after.Cmp(deepest) > 0
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

// giveBack does the history again with the charge lowered.
func (b *interval) giveBack(t *big.Int, r receipt, g int64) {
	if !b.past.rewrite(r, g) {
		return
	}
	if b.missing, b.index = b.first.missing, b.first.index; b.missing == nil {
		b.missing, b.index = new(big.Int), new(big.Int)
	}
	for _, a := range b.past.acts {
		if a.units >= 0 {
			b.pour(a.at, a.units)
		} else {
			b.write(a.at, lessUpTo(b.missingAt(a.at), big.NewInt(-a.units)))
		}
	}
}

func (b *interval) refund(t *big.Int, c int64) {
	b.past.refunded(t, c)
	b.write(t, lessUpTo(b.missingAt(t), big.NewInt(c)))
}
