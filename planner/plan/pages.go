package plan

// pages is a slice with one element for each client. It grows without being copied.
type pages[T any] struct{ all [][]T }

const (
	pageBits = 10
	pageSize = 1 << pageBits
)

// at returns the element of a client. It is zero before its first use.
func (p *pages[T]) at(id uint32) *T {
	page := id >> pageBits
	for int(page) >= len(p.all) {
		p.all = append(p.all, nil)
	}
	if p.all[page] == nil {
		p.all[page] = make([]T, pageSize)
	}
	return &p.all[page][id%pageSize]
}

// each calls f for every element of the pages in use, in order.
func (p *pages[T]) each(f func(id uint32, element *T)) {
	for i, page := range p.all {
		for j := range page {
			f(uint32(i<<pageBits+j), &page[j])
		}
	}
}

// len returns how many elements the pages in use have.
func (p *pages[T]) len() (n int) {
	for _, page := range p.all {
		n += len(page)
	}
	return n
}
