package luaserver

import (
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// mendNumbers makes numbers of text as Lua 5.1 does. The interpreter by itself
// takes digits behind a zero for octal ones, and knows no whole number above
// 2^63.
func mendNumbers(l *lua.LState) {
	l.SetGlobal("tonumber", l.NewFunction(func(l *lua.LState) int {
		if l.GetTop() > 1 && l.CheckInt(2) != 10 {
			l.ArgError(2, "luaserver: only numbers to the base 10")
		}
		if v, ok := number(l.CheckAny(1)); ok {
			l.Push(v)
		} else {
			l.Push(lua.LNil)
		}
		return 1
	}))
	ofText := l.GetMetatable(lua.LString("")).(*lua.LTable)
	for event, do := range map[string]func(a, b float64) float64{
		"__add": func(a, b float64) float64 { return a + b },
		"__sub": func(a, b float64) float64 { return a - b },
		"__mul": func(a, b float64) float64 { return a * b },
		"__div": func(a, b float64) float64 { return a / b },
		"__mod": func(a, b float64) float64 { return a - math.Floor(a/b)*b },
	} {
		ofText.RawSetString(event, l.NewFunction(func(l *lua.LState) int {
			a, ok := number(l.Get(1))
			b, ok2 := number(l.Get(2))
			if !ok || !ok2 {
				l.RaiseError("attempt to perform arithmetic on a %v and a %v that are not both numbers", l.Get(1).Type(), l.Get(2).Type())
			}
			l.Push(lua.LNumber(do(float64(a), float64(b))))
			return 1
		}))
	}
}

// number returns a number, or the one that text in decimal digits says.
func number(v lua.LValue) (lua.LNumber, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return v, true
	case lua.LString:
		text := strings.Trim(string(v), " \t\n\v\f\r")
		if strings.Trim(text, "0123456789+-.eE") != "" {
			return 0, false
		}
		f, err := strconv.ParseFloat(text, 64)
		return lua.LNumber(f), err == nil
	}
	return 0, false
}
