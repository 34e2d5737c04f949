package rls

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Decode reads a message as the server does.
func Decode(data []byte, v any) error {
	return codec{encoding.GetCodecV2(proto.Name)}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, v)
}

// Unmarshal is for the fuzzer.
var Unmarshal = unmarshal
