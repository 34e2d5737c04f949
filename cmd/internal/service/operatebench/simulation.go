package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

const (
	// simulations is how many turns are taken without simulations and with them,
	// each as long as turn.
	simulations = 9
	turn        = 2 * time.Second
	// pace is how many requests a second each connection sends.
	pace = 250

	mostBeside = 2.0 // p99 of a request while simulations run, and without
)

// simulated is as much as POST /v1/simulate takes: 100,000 requests under each limit.
const simulated = `{"limits":["10/s burst 20","10/s sliding_log","10/s fixed_window"],"arrivals":{"shape":"text","text":"100000@5000/s"},"each":false}`

// simulation asks at a steady pace, in turns with and without simulations one after
// the other at the admin address, and compares how long answers take.
func simulation(ctx context.Context, s *server) error {
	var ratios []float64
	runs := 0
	fmt.Printf("/v1/check at %d a second, 99 %% within, without and beside simulations\n%8s%12s%12s%10s\n", conns*pace, "round", "without", "beside", "ratio")
	for round := range simulations + 1 {
		alone, err := s.paced(turn)
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		ran := make(chan int, 1)
		failed := make(chan error, 1)
		go func() {
			n, err := s.simulate(ctx)
			ran <- n
			failed <- err
		}()
		beside, err := s.paced(turn)
		stop()
		n := <-ran
		if err := errors.Join(err, <-failed); err != nil {
			return err
		}
		if round == 0 {
			continue // to warm up
		}
		runs += n
		ratio := float64(beside) / float64(alone)
		ratios = append(ratios, ratio)
		fmt.Printf("%8d%12v%12v%10.2f\n", round, alone.Round(time.Microsecond), beside.Round(time.Microsecond), ratio)
	}
	if runs < simulations {
		return fmt.Errorf("%d simulations ended in %d turns: too few to compare with", runs, simulations)
	}
	slices.Sort(ratios)
	fmt.Printf("%d simulations of 300,000 decisions\n", runs)
	median := ratios[len(ratios)/2]
	verdict(fmt.Sprintf("median %.2f ×", median), fmt.Sprintf("at most %.0f ×", mostBeside), median <= mostBeside)
	return nil
}

// simulate runs one simulation after the other until ctx ends, and returns how many
// have ended.
func (s *server) simulate(ctx context.Context) (n int, err error) {
	for ; ; n++ {
		_, err = s.post(ctx, s.admin, "/v1/simulate", simulated)
		if ctx.Err() != nil {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// paced asks for a while, and returns within what time 99 % of the answers came.
func (s *server) paced(d time.Duration) (time.Duration, error) {
	times, failures := make(chan []time.Duration, conns), make(chan error, conns)
	begin := time.Now()
	for c := range conns {
		go func() {
			took, err := askPaced(s.http, c, begin, begin.Add(d))
			times <- took
			failures <- err
		}()
	}
	var all []time.Duration
	var err error
	for range conns {
		all = append(all, <-times...)
		err = errors.Join(err, <-failures)
	}
	if err != nil {
		return 0, err
	}
	slices.Sort(all)
	return all[len(all)*99/100], nil
}

// askPaced sends requests on a connection when they are due. One that is due
// while the one before it has no answer counts from then on.
func askPaced(address string, seed int, begin, until time.Time) (took []time.Duration, err error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer := make([]byte, 8<<10)
	due := begin.Add(time.Duration(seed) * time.Second / pace / conns)
	for n := 0; due.Before(until); n++ {
		from := due
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
			from = time.Now()
		}
		if err := exchange(conn, request(seed*100_003+n), answer); err != nil {
			return nil, err
		}
		took = append(took, time.Since(from))
		due = due.Add(time.Second / pace)
	}
	return took, nil
}
