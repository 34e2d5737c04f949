package stint

import "context"

// A Job is work for [Queue.SubmitJob].
type Job struct {
	// Run is the work. It is called on a goroutine of its own. Required.
	Run func()
	// Cost is how many units it takes. The default value, 0, is 1.
	Cost int64
	// Priority lets the job start in the turn of one that has a lower priority and the same
	// cost and waits before it in this Queue, by SubmitJob; that one waits on, behind it. Those
	// of one priority start in order. The default value is 0.
	Priority int
	// Dropped is called once, on a goroutine of its own and in place of Run, if the job was
	// accepted and does not start after all: with [ErrStale] when it is too old, [ErrClosed]
	// by Close, a [*WaitError] if the limit has been lowered below its cost, or the store's
	// error. Nothing stays charged, unless the store may
	// have charged it ([ErrAmbiguous]). Optional.
	Dropped func(error)
}

// SubmitJob is [Queue.Submit] of work with a cost of its own, which hears if it is
// dropped. The error is also [ErrCost] for a cost below zero, and a [*WaitError] for one
// above the limit, which can never pass.
func (q *Queue) SubmitJob(job Job) error {
	if job.Run == nil {
		return errNoWork
	}
	if job.Cost < 0 {
		return ErrCost
	}
	q.submit.Lock()
	defer q.submit.Unlock()
	t, err := q.enter(context.Background(), max(job.Cost, 1))
	if err != nil {
		return err
	}
	t.job = job
	started, err := t.waiter.Drive(t.ctx, true)
	switch {
	case err != nil:
		return q.leave(t, err)
	case started:
		q.start(t, nil)
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.later = append(q.later, t)
	if job.Priority != 0 {
		q.ranked++
	}
	if !q.running {
		q.running = true
		q.busy.Add(1)
		go q.schedule()
	}
	return nil
}

// promote gives the turn of a ticket to the first job of the highest priority among those
// that wait behind it at the same cost; the jobs between them move one ticket back. The
// Queue is locked.
func (q *Queue) promote(t *ticket) {
	alike, best := []*ticket{t}, 0
	for _, o := range q.later {
		if o.waiter.part.cost != t.waiter.part.cost {
			continue
		}
		alike = append(alike, o)
		if o.job.Priority > alike[best].job.Priority {
			best = len(alike) - 1
		}
	}
	job, arrived := alike[best].job, alike[best].arrived
	for ; best > 0; best-- {
		alike[best].job, alike[best].arrived = alike[best-1].job, alike[best-1].arrived
		alike[best].age()
	}
	t.job, t.arrived = job, arrived
}
