//go:build !race

package plan_test

const racing = false
