package rls

import (
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// codec reads requests whose entries are no UTF-8 as well. Envoy puts what a client has
// written into a header into an entry as it is, and lets the request pass if that is an
// error.
type codec struct{ encoding.CodecV2 }

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	if req, ok := v.(*pb.RateLimitRequest); ok && err != nil {
		return unmarshal(data.Materialize(), req)
	}
	return err
}

// The numbers of fields.
const (
	descriptorsField = 2 // of a request
	entriesField     = 1 // of a descriptor
	keyField         = 1 // of an entry
	valueField       = 2
)

var known = proto.UnmarshalOptions{DiscardUnknown: true}

// unmarshal reads a request whose keys and values are bytes.
func unmarshal(data []byte, req *pb.RateLimitRequest) error {
	var all []*common.RateLimitDescriptor
	rest, err := cut(data, descriptorsField, func(data []byte) error {
		var entries []*common.RateLimitDescriptor_Entry
		rest, err := cut(data, entriesField, func(data []byte) error {
			e := new(common.RateLimitDescriptor_Entry)
			entries = append(entries, e)
			rest, err := cut(data, keyField, func(key []byte) error { e.Key = string(key); return nil })
			if err == nil {
				_, err = cut(rest, valueField, func(value []byte) error { e.Value = string(value); return nil })
			}
			return err
		})
		d := new(common.RateLimitDescriptor)
		if err == nil {
			err = known.Unmarshal(rest, d)
		}
		d.Entries = entries
		all = append(all, d)
		return err
	})
	if err == nil {
		err = known.Unmarshal(rest, req)
	}
	req.Descriptors = all
	return err
}

// cut takes the strings and messages of one field out of a message, and returns the rest.
func cut(data []byte, field protowire.Number, take func(value []byte) error) (rest []byte, err error) {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, kind, data[n:])
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		if number == field && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(data[n:])
			err = take(value)
		} else {
			rest = append(rest, data[:n+size]...)
		}
		if err != nil {
			return nil, err
		}
		data = data[n+size:]
	}
	return rest, nil
}
