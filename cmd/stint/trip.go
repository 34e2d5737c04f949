//go:build trip

package main

import (
	"log"
	"os"
	"os/signal"
	"runtime/coverage"
	"syscall"
)

// init is built in for proof/cmd/house alone, which counts the files that a boot
// runs through: it clears the counters before main begins, and has SIGUSR1 write them.
func init() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		<-asked
		dir := os.Getenv("STINT_TRIP")
		if err := coverage.WriteMetaDir(dir); err != nil {
			log.Fatal(err)
		}
		if err := coverage.WriteCountersDir(dir); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	}()
	if err := coverage.ClearCounters(); err != nil {
		log.Fatal(err)
	}
}
