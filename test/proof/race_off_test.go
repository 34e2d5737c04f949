//go:build !race

package proof_test

const racing = false
