package memstore

import "slices"

// A slab holds states that are too large for a table's slots, or grow: those of
// sliding_buckets and logs. It hands out blocks of words by reference, from pages
// without pointers, so that the garbage collector has nothing to follow. A page whose
// blocks are all free goes back to the collector. The zero slab is empty. The shard's
// lock guards it.
type slab struct {
	classes []class
	bytes   int64  // of all pages
	apart   uint64 // added to every reference; if not 0, each block has its own page
}

// A page holds as many blocks of one size as fit; a larger block has its own page. The
// first pages of a size are small, so that few keys take little memory. Later ones are
// large, so that many keys are few objects for the garbage collector.
const (
	smallPage  = 1 << 10 // words
	largePage  = 1 << 13
	smallPages = 16 // number of small pages
	pageBits   = 8  // a page has at most 2^pageBits blocks
	classShift = 48 // a reference: class, page, block
	apartBit   = 1 << 63
)

// class is the blocks of one size.
type class struct {
	words   int
	pages   []page
	partial []uint32 // pages that may have a free block
	empty   []uint32 // indexes in pages that are free
}

type page struct {
	words  []uint64
	blocks uint16
	free   uint16 // one more than the first free block, which holds the next one's
	fresh  uint16 // blocks from here on were never used
	live   uint16
}

// alloc returns a zeroed block of at least the given number of words, and its
// reference, which is never 0.
func (s *slab) alloc(words int) (ref uint64, block []uint64) {
	ci := s.class(words)
	c := &s.classes[ci]
	pi := c.open(s)
	p := &c.pages[pi]
	var b int
	if p.free > 0 {
		b = int(p.free) - 1
		p.free = uint16(p.words[b*c.words])
	} else {
		b = int(p.fresh)
		p.fresh++
	}
	p.live++
	block = p.block(b, c.words)
	clear(block)
	return s.apart | uint64(ci+1)<<classShift | uint64(pi)<<pageBits | uint64(b), block
}

func (p *page) block(b, words int) []uint64 {
	return p.words[b*words : (b+1)*words : (b+1)*words]
}

func (s *slab) class(words int) int {
	for i := range s.classes {
		if s.classes[i].words == words {
			return i
		}
	}
	s.classes = append(s.classes, class{words: words})
	return len(s.classes) - 1
}

// fits reports whether a block of the given number of words can be had: the slab is
// below most bytes, so that one more page is allowed, or a page has a free block.
func (s *slab) fits(words int, most int64) bool {
	if s.bytes < most {
		return true
	}
	_, ok := s.classes[s.class(words)].next()
	return ok
}

// sparse reports whether a block lies in a page that is more than half free, while
// another page has a free block.
func (s *slab) sparse(ref uint64) bool {
	ci, pi, _ := split(ref)
	c := &s.classes[ci]
	next, ok := c.next()
	return ok && next != pi && 2*int(c.pages[pi].live) < int(c.pages[pi].blocks)
}

// next returns the page that the next block comes from; ok is false if all are full.
func (c *class) next() (pi uint32, ok bool) {
	for len(c.partial) > 0 {
		pi = c.partial[len(c.partial)-1]
		if p := &c.pages[pi]; p.words != nil && (p.free > 0 || p.fresh < p.blocks) {
			return pi, true
		}
		c.partial = c.partial[:len(c.partial)-1]
	}
	return 0, false
}

// open returns a page with a free block.
func (c *class) open(s *slab) uint32 {
	if pi, ok := c.next(); ok {
		return pi
	}
	size := smallPage
	if len(c.pages) >= smallPages {
		size = largePage
	}
	blocks := min(max(size/c.words, 1), 1<<pageBits)
	if s.apart != 0 {
		blocks = 1
	}
	p := page{words: make([]uint64, blocks*c.words), blocks: uint16(blocks)}
	s.bytes += int64(8 * len(p.words))
	pi := uint32(len(c.pages))
	if n := len(c.empty); n > 0 {
		pi, c.empty = c.empty[n-1], c.empty[:n-1]
		c.pages[pi] = p
	} else {
		c.pages = append(c.pages, p)
	}
	c.partial = append(c.partial, pi)
	return pi
}

func split(ref uint64) (ci int, pi uint32, b int) {
	return int(ref&^apartBit>>classShift) - 1, uint32(ref >> pageBits), int(ref & (1<<pageBits - 1))
}

// get returns the block of a reference.
func (s *slab) get(ref uint64) []uint64 {
	ci, pi, b := split(ref)
	c := &s.classes[ci]
	return c.pages[pi].block(b, c.words)
}

// release frees the block of a reference.
func (s *slab) release(ref uint64) {
	ci, pi, b := split(ref)
	c := &s.classes[ci]
	p := &c.pages[pi]
	if p.live--; p.live == 0 {
		s.bytes -= int64(8 * len(p.words))
		*p = page{}
		c.partial = slices.DeleteFunc(c.partial, func(i uint32) bool { return i == pi })
		c.empty = append(c.empty, pi)
		return
	}
	if p.free == 0 && p.fresh == p.blocks {
		c.partial = append(c.partial, pi)
	}
	p.words[b*c.words] = uint64(p.free)
	p.free = uint16(b + 1)
}

// roomy rounds a length in words up to one of four sizes per doubling, so that states
// that grow word by word move rarely and share few sizes.
func roomy(words int) int {
	step := 2
	for step*8 <= words {
		step *= 2
	}
	return (words + step - 1) / step * step
}
