package rulesredis

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/klauspost/compress/zstd"
)

// mostUnpacked bounds what a block may unpack to.
const mostUnpacked = 8 << 20

// packer and unpacker may be used from many goroutines at once.
var (
	packer   = must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)))
	unpacker = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(mostUnpacked)))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are good
	}
	return v
}

// pack returns frames as a block.
func pack(frames []byte) string { return string(packer.EncodeAll(frames, nil)) }

// unpack is the opposite of pack.
func unpack(block string) ([]byte, error) {
	data, err := unpacker.DecodeAll([]byte(block), nil)
	if err != nil {
		return nil, errors.New("a block is not what was published")
	}
	return data, nil
}

// link returns the chain of a list with one more block. Lists of the same chain
// hold the same blocks; that of none is "". A server that goes back, as to a copy
// which is behind, and on another way has as many blocks, and another chain.
func link(chain, block string) string {
	sum := sha256.Sum256([]byte(chain + block))
	return hex.EncodeToString(sum[:])
}
