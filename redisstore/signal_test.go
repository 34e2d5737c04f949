package redisstore_test

import "syscall"

const stop, resume = syscall.SIGSTOP, syscall.SIGCONT
