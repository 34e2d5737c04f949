package resp

import (
	"bytes"
	"fmt"
)

// The most commands of a transaction, and bytes of their arguments.
const (
	maxQueued      = 256
	maxQueuedBytes = 64 << 10
)

// A transaction is what a client sends between MULTI and EXEC. It is a way to
// send commands and take their answers together, no more: each is decided by
// itself, in order, and others may be decided in between.
type transaction struct {
	open    bool
	spoiled bool // a command was refused, so EXEC runs none
	queued  [][][]byte
	bytes   int
}

// queue keeps a command for EXEC. Its arguments are copied: the reader uses their
// memory again.
func (c *conn) queue(args [][]byte) {
	size := 0
	kept := make([][]byte, len(args))
	for i, arg := range args {
		kept[i] = bytes.Clone(arg)
		size += len(arg)
	}
	if len(c.multi.queued) == maxQueued || c.multi.bytes+size > maxQueuedBytes {
		c.refuse("ERR", fmt.Sprintf("a transaction has at most %d commands and %d bytes", maxQueued, maxQueuedBytes))
		return
	}
	c.multi.queued = append(c.multi.queued, kept)
	c.multi.bytes += size
	c.out.status("QUEUED")
}

// refuse answers that a command is wrong; a transaction that it is part of runs
// none.
func (c *conn) refuse(word, text string) {
	c.multi.spoiled = c.multi.open
	c.out.fail(word, text)
}

func (c *conn) begin([][]byte) {
	if c.multi.open {
		c.out.fail("ERR", "MULTI calls can not be nested")
		return
	}
	c.multi.open = true
	c.out.status("OK")
}

func (c *conn) discard([][]byte) {
	if !c.multi.open {
		c.out.fail("ERR", "DISCARD without MULTI")
		return
	}
	c.multi = transaction{}
	c.out.status("OK")
}

// exec answers the commands since MULTI, in order.
func (c *conn) exec([][]byte) {
	multi := c.multi
	c.multi = transaction{}
	switch {
	case !multi.open:
		c.out.fail("ERR", "EXEC without MULTI")
		return
	case multi.spoiled:
		c.out.fail("EXECABORT", "Transaction discarded because of previous errors.")
		return
	}
	c.out.array(len(multi.queued))
	for _, args := range multi.queued {
		c.do(args)
		if len(c.out.buf) >= flushAt && !c.flush() {
			c.quit = true
			return
		}
	}
}

func (c *conn) watch([][]byte) {
	c.out.fail("ERR", "WATCH has nothing to watch: what keys have used changes with time, and a transaction here isolates nothing")
}

func (c *conn) unwatch([][]byte) { c.out.status("OK") }
