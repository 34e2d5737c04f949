package rls

import (
	"errors"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// codec also decodes requests whose entries are not UTF-8. Envoy copies what a client has written
// in a header to an entry, and lets the request pass if that is an error. Of descriptors and
// entries it decodes at most one above the bound, which is then denied: decoding all would take a
// hundred times the bytes of empty ones.
type codec struct{ encoding.CodecV2 }

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	req, ok := v.(*pb.RateLimitRequest)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	if within(buffer.ReadOnlyData()) && proto.Unmarshal(buffer.ReadOnlyData(), req) == nil {
		return nil
	}
	return unmarshal(buffer.ReadOnlyData(), req)
}

// Field numbers of the messages.
const (
	descriptorsField = 2 // in a request
	entriesField     = 1 // in a descriptor
	keyField         = 1 // in an entry
	valueField       = 2
)

var errMany = errors.New("more than there may be")

// within reports whether a request can be decoded and its descriptors and entries are within the
// bounds.
func within(data []byte) bool {
	descriptors := 0
	return each(data, func(number protowire.Number, value, _ []byte) error {
		if number != descriptorsField || value == nil {
			return nil
		}
		if descriptors++; descriptors > MaxDescriptors {
			return errMany
		}
		entries := 0
		return each(value, func(number protowire.Number, value, _ []byte) error {
			if number == entriesField && value != nil {
				entries++
			}
			if entries > MaxEntries {
				return errMany
			}
			return nil
		})
	}) == nil
}

var known = proto.UnmarshalOptions{DiscardUnknown: true}

// unmarshal decodes a request whose keys and values are bytes. It stops at one descriptor and one
// entry above the bounds.
func unmarshal(data []byte, req *pb.RateLimitRequest) error {
	var all []*common.RateLimitDescriptor
	rest, err := cut(data, descriptorsField, func(data []byte) error {
		if len(all) > MaxDescriptors {
			return nil
		}
		var entries []*common.RateLimitDescriptor_Entry
		rest, err := cut(data, entriesField, func(data []byte) error {
			if len(entries) > MaxEntries {
				return nil
			}
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

// cut passes the values of one field of strings or messages to take, and returns the rest of the
// message.
func cut(data []byte, field protowire.Number, take func(value []byte) error) (rest []byte, err error) {
	err = each(data, func(number protowire.Number, value, whole []byte) error {
		if number == field && value != nil {
			return take(value)
		}
		rest = append(rest, whole...)
		return nil
	})
	return rest, err
}

// each calls visit for the fields of a message, with their bytes, and the value if they are strings
// or messages, until an error.
func each(data []byte, visit func(number protowire.Number, value, whole []byte) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, kind, data[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(data[n:])
		}
		if err := visit(number, value, data[:n+size]); err != nil {
			return err
		}
		data = data[n+size:]
	}
	return nil
}
