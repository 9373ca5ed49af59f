package swarm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// session is one session of a client, of any make. Errors are failures, or mean that the call's fate is not known.
type session interface {
	// tick calls tick with a word.
	tick(ctx context.Context, word string) (answer string, err error)
	// ask calls a tool that asks the client something, and returns how often it was asked.
	ask(ctx context.Context) (asked int, answer string, err error)
	// stream calls a tool that sends so many progress notifications, cuts the stream after some, and has it resumed.
	stream(ctx context.Context, number, cut int) (streamed, error)
	// cancel cancels a call that has begun. It fails if the call is answered.
	cancel(ctx context.Context) error
	// end releases what the session holds. If the session lives, the server is told that it ends.
	end(ctx context.Context, lives bool)
}

// streamed is the result of a stream.
type streamed struct {
	progress []float64
	answer   string
	resumed  bool
}

// progressed is how many progress notifications a stream has.
const progressed = 20

// checked is a session whose answers are compared with those before.
type checked struct {
	session session
	client  *client
	called  int
	process string // which the session has; empty before the first answer of tick
	// least and most are how many calls of tick the process has executed. They differ after calls of which the
	// client does not know whether they were executed. The network may hold such a call back, and deliver it when others have been
	// answered, so the difference stays until the count shows that it was executed.
	least, most int
}

func (s *checked) tick(ctx context.Context) error {
	s.called++
	word := fmt.Sprintf("%d/%d", s.client.number, s.called)
	answer, err := s.session.tick(ctx, word)
	if err != nil {
		if kind := s.client.swarm.failureOf(err).kind; kind == Broken || kind == Abandoned || kind == Unasked {
			s.most++
		}
		return err
	}
	s.client.swarm.count(func(r *Report) { r.Calls++ })
	return s.checkTick(answer, word)
}

func (s *checked) checkTick(text, word string) error {
	fields := strings.Fields(text) // host, nonce, count, word
	if len(fields) != 4 || fields[3] != word {
		return wrong("tick answered %q to %q", text, word)
	}
	process := fields[0] + " " + fields[1]
	if s.process != "" && process != s.process {
		return wrong("process %s answered in a session of process %s", process, s.process)
	}
	count, err := strconv.Atoi(fields[2])
	if err != nil || count < s.least+1 || count > s.most+1 {
		return wrong("the process has executed %s calls, and the session has made %d to %d", fields[2], s.least+1, s.most+1)
	}
	s.process, s.least, s.most = process, count, s.most+1
	s.client.noteOwner(fields[0])
	s.client.noteAnswer()
	return nil
}

func (s *checked) question(ctx context.Context) error {
	asked, answer, err := s.session.ask(ctx)
	switch {
	case err != nil:
		return err
	case asked != 1 || !strings.Contains(answer, `"accept"`):
		return wrong("the server asked %d times, and says %q", asked, answer)
	}
	s.client.swarm.count(func(r *Report) { r.Questions++ })
	return nil
}

func (s *checked) cancel(ctx context.Context) error {
	if err := s.session.cancel(ctx); err != nil {
		return err
	}
	s.client.swarm.count(func(r *Report) { r.Cancelled++ })
	return nil
}

func (s *checked) stream(ctx context.Context) error {
	got, err := s.session.stream(ctx, progressed, 1+s.client.random.IntN(progressed-2))
	if err != nil {
		return err
	}
	for n, progress := range got.progress {
		if progress != float64(n) {
			return wrong("progress %v came in the place of %d", progress, n)
		}
	}
	if got.answer != "done" || len(got.progress) != progressed {
		return wrong("a stream ended with %q after %d of %d notifications", got.answer, len(got.progress), progressed)
	}
	s.client.swarm.count(func(r *Report) {
		r.Streams++
		if got.resumed {
			r.Resumed++
		}
	})
	return nil
}
