//go:build !race

package redisstore_test

const racing = false
