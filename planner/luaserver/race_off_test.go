//go:build !race

package luaserver_test

const racing = false
