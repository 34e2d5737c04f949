//go:build !race

package lab_test

const racing = false
