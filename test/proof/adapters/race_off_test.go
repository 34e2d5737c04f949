//go:build !race

package adapters_test

const racing = false
