//go:build !race

package main_test

const racing = false
