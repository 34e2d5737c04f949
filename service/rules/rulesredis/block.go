package rulesredis

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/klauspost/compress/zstd"
)

// mostUnpacked bounds the unpacked size of a block.
const mostUnpacked = 8 << 20

// packer and unpacker may be used from many goroutines at once.
var (
	packer   = must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)))
	unpacker = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(mostUnpacked)))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are valid
	}
	return v
}

// pack returns frames as a block.
func pack(frames []byte) string { return string(packer.EncodeAll(frames, nil)) }

// unpack is the inverse of pack.
func unpack(block string) ([]byte, error) {
	data, err := unpacker.DecodeAll([]byte(block), nil)
	if err != nil {
		return nil, errors.New("a block is not what was published")
	}
	return data, nil
}

// link returns the chain of a list after one more block. Lists with the same chain hold the same
// blocks; the chain of an empty list is "". A server that was restored and then changed may have as
// many blocks as before, but it has another chain.
func link(chain, block string) string {
	sum := sha256.Sum256([]byte(chain + block))
	return hex.EncodeToString(sum[:])
}
