package chaos_test

import (
	"syscall"
	"time"
)

// together is how long processes of two forms run at the same time, after each
// that is replaced: an exhausted key has its burst again in a second.
const together = 1200 * time.Millisecond

func restartAll(s *site) {
	s.exhaust()
	s.roll(loose)
}

func deployTight(s *site) {
	s.exhaust()
	s.roll(tight)
}

func deployLoose(s *site) { s.roll(loose) }

// exhaust has all keys full, then exhausted: so the envelope of what follows has no
// burst left that could hide what a form frees.
func (s *site) exhaust() {
	s.resting.Store(true)
	time.Sleep(together)
	s.resting.Store(false)
	time.Sleep(2 * time.Second)
}

// roll stops the processes and starts them again with a form, one after the other.
func (s *site) roll(f form) {
	for _, p := range s.processes {
		s.keepWithout(p)
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			s.Fatal(err)
		}
		if err := p.cmd.Wait(); err != nil {
			s.Errorf("%s did not end well at SIGTERM: %v", p.addr, err)
		}
		s.write(p, f)
		s.start(p)
		for end := time.Now().Add(30 * time.Second); s.metric(p, "stint_fallback_total") < 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				s.Fatalf("%s does not answer after it was started again", p.addr)
			}
		}
		time.Sleep(together)
	}
}
