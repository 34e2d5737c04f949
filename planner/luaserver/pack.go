package luaserver

import (
	"encoding/binary"
	"encoding/json"
	"math"

	lua "github.com/yuin/gopher-lua"
)

// A field is one value of a format of struct.pack.
type field struct {
	double bool
	big    bool // the greatest byte comes first
	size   int  // bytes
}

// put writes the bytes of a value.
func (f field) put(out []byte, bits uint64) []byte {
	if f.big {
		return append(out, binary.BigEndian.AppendUint64(nil, bits)[8-f.size:]...)
	}
	return append(out, binary.LittleEndian.AppendUint64(nil, bits)[:f.size]...)
}

// get reads them.
func (f field) get(data []byte) uint64 {
	var word [8]byte
	if f.big {
		copy(word[8-f.size:], data[:f.size])
		return binary.BigEndian.Uint64(word[:])
	}
	copy(word[:], data[:f.size])
	return binary.LittleEndian.Uint64(word[:])
}

// fields reads a format: "<", the least byte first, or ">", the greatest, then d
// for a double and I with a size for a whole number without a sign.
func fields(l *lua.LState, format string) (all []field) {
	if format == "" || format[0] != '<' && format[0] != '>' {
		l.ArgError(1, "luaserver: a format begins with < or >")
	}
	big := format[0] == '>'
	for i := 1; i < len(format); i++ {
		switch {
		case format[i] == 'd':
			all = append(all, field{true, big, 8})
		case format[i] == 'I' && i+1 < len(format) && format[i+1] >= '1' && format[i+1] <= '8':
			i++
			all = append(all, field{false, big, int(format[i] - '0')})
		default:
			l.ArgError(1, "luaserver: a format is < and then d and I1 to I8: "+format)
		}
	}
	return all
}

func structPack(l *lua.LState) int {
	var out []byte
	for i, f := range fields(l, l.CheckString(1)) {
		v := float64(l.CheckNumber(i + 2))
		bits := math.Float64bits(v)
		if !f.double {
			bits = uint64(v)
		}
		out = f.put(out, bits)
	}
	l.Push(lua.LString(out))
	return 1
}

// structUnpack answers with the values, and with where the next one would be.
func structUnpack(l *lua.LState) int {
	all, data, at := fields(l, l.CheckString(1)), l.CheckString(2), l.OptInt(3, 1)-1
	for _, f := range all {
		if at < 0 || at+f.size > len(data) {
			l.ArgError(2, "data string too short")
		}
		bits := f.get([]byte(data[at : at+f.size]))
		if f.double {
			l.Push(lua.LNumber(math.Float64frombits(bits)))
		} else {
			l.Push(lua.LNumber(bits))
		}
		at += f.size
	}
	l.Push(lua.LNumber(at + 1))
	return len(all) + 1
}

// listPack packs a list of numbers and text. What it looks like is between it
// and listUnpack: the script keeps it as it is.
func listPack(l *lua.LState) int {
	t := l.CheckTable(1)
	all := make([]any, t.Len())
	for i := range all {
		switch v := t.RawGetInt(i + 1).(type) {
		case lua.LNumber:
			all[i] = float64(v)
		case lua.LString:
			all[i] = string(v)
		default:
			l.ArgError(1, "luaserver: a list of numbers and text")
		}
	}
	text, err := json.Marshal(all)
	if err != nil { // a number that is none
		l.ArgError(1, err.Error())
	}
	l.Push(lua.LString(text))
	return 1
}

func listUnpack(l *lua.LState) int {
	var all []any
	if err := json.Unmarshal([]byte(l.CheckString(1)), &all); err != nil {
		l.ArgError(1, err.Error())
	}
	t := l.CreateTable(len(all), 0)
	for _, v := range all {
		switch v := v.(type) {
		case float64:
			t.Append(lua.LNumber(v))
		case string:
			t.Append(lua.LString(v))
		}
	}
	l.Push(t)
	return 1
}
