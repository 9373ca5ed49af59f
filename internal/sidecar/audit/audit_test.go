package audit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// writerFunc is a writer that a test makes up.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// numbered is an event that verbs can tell from others.
func numbered(n int) *Event {
	e := call()
	e.Verb = strconv.Itoa(n)
	return e
}

// verbs returns the verbs of whole lines.
func verbs(t *testing.T, lines []byte) []string {
	t.Helper()
	var all []string
	for text := range bytes.Lines(lines) {
		all = append(all, checkLine(t, text)["verb"].(string))
	}
	return all
}

// count returns the numbers from 0 to n-1 as texts.
func count(n int) []string {
	var all []string
	for i := range n {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

// closeLog closes a log that must write everything.
func closeLog(t *testing.T, l *Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestAuditIDs(t *testing.T) {
	var written bytes.Buffer
	l := New(&written, nil)
	for range 100 {
		l.Add(call())
	}
	closeLog(t, l)
	format := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	ids := map[string]bool{}
	for text := range bytes.Lines(written.Bytes()) {
		id := checkLine(t, text)["auditID"].(string)
		if ids[id] || !format.MatchString(id) {
			t.Errorf("auditID %q is no new random UUID", id)
		}
		ids[id] = true
	}
	if len(ids) != 100 {
		t.Errorf("log has %d ids, want 100", len(ids))
	}
}

func TestOrder(t *testing.T) {
	const writers, each = 8, 250 // more than the buffer holds
	var written bytes.Buffer
	var refused atomic.Uint64
	l := New(&written, nil)
	var wg sync.WaitGroup
	for writer := range writers {
		wg.Go(func() {
			e := numbered(0)
			e.Namespace = strconv.Itoa(writer)
			for i := range each {
				e.Verb = strconv.Itoa(i)
				for !l.Add(e) {
					refused.Add(1)
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	closeLog(t, l)

	next := map[any]int{}
	for text := range bytes.Lines(written.Bytes()) {
		decoded := checkLine(t, text)
		writer := at(t, decoded, []any{"objectRef", "namespace"})
		if want := strconv.Itoa(next[writer]); decoded["verb"] != want {
			t.Fatalf("line %q of writer %q, want %q", decoded["verb"], writer, want)
		}
		next[writer]++
	}
	for writer := range writers {
		if got := next[strconv.Itoa(writer)]; got != each {
			t.Errorf("writer %d has %d lines, want %d", writer, got, each)
		}
	}
	if l.Lost() != refused.Load() {
		t.Errorf("Lost is %d, but Add returned false %d times", l.Lost(), refused.Load())
	}
}

// A reader that does not read its pipe costs events, and nothing else.
func TestPipeThatIsNotRead(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := New(w, nil)
	added := 0
	for ; l.Add(numbered(added)); added++ {
		if added*len(appendEvent(nil, [16]byte{}, call())) > 2*BufferBytes {
			t.Fatal("the log is never full")
		}
	}
	if l.Lost() != 1 {
		t.Errorf("Lost is %d, want 1", l.Lost())
	}

	read := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(r)
		read <- all
	}()
	for l.Full() {
		runtime.Gosched()
	}
	if !l.Add(numbered(added)) {
		t.Error("Add added no event after the pipe was read")
	}
	closeLog(t, l)
	_ = w.Close()
	if diff := cmp.Diff(count(added+1), verbs(t, <-read)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// A log whose writer blocks takes events of any size until it is full. Its halves never grow.
func TestFull(t *testing.T) {
	large := largest()
	large.Denied = "" // such lines have less room
	tests := map[string]*Event{"call": call(), "largest": large}
	for name, e := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				block := make(chan struct{})
				lines := 0
				l := New(writerFunc(func(p []byte) (int, error) {
					<-block
					lines += bytes.Count(p, []byte("\n"))
					return len(p), nil
				}), nil)
				l.Add(e)
				synctest.Wait() // the goroutine has the first line
				fit := (BufferBytes/2-maxLine)/len(appendEvent(nil, [16]byte{}, e)) + 1
				for i := range fit {
					if l.Full() || !l.Add(e) {
						t.Fatalf("log is full after %d events, want %d", i, fit)
					}
				}
				for lost := range uint64(3) {
					if !l.Full() || l.Add(e) || l.Lost() != lost+1 {
						t.Fatalf("log takes more than %d events, or counts %d as lost", fit, l.Lost())
					}
				}
				if got := cap(l.filled); got != BufferBytes/2 {
					t.Errorf("half has %d bytes, want %d", got, BufferBytes/2)
				}

				close(block)
				synctest.Wait()
				if l.Full() || !l.Add(e) {
					t.Error("log is full although everything is written")
				}
				closeLog(t, l)
				if lines != fit+2 || l.Lost() != 3 {
					t.Errorf("%d lines are written and %d lost, want %d and 3", lines, l.Lost(), fit+2)
				}
			})
		})
	}
}

// Add does not wait, in whatever step of its work the writer blocks.
func TestAddBetweenWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written bytes.Buffer
		step := make(chan struct{})
		l := New(writerFunc(func(p []byte) (int, error) {
			<-step
			return written.Write(p)
		}), nil)
		for i := range 10 {
			l.Add(numbered(i))
			synctest.Wait() // the goroutine is in a write
			if i > 0 {
				step <- struct{}{} // and now in the next one, with the line just added
			}
		}
		close(step)
		closeLog(t, l)
		if diff := cmp.Diff(count(10), verbs(t, written.Bytes())); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	})
}

func TestFailingWriter(t *testing.T) {
	broken := errors.New("broken")
	tests := map[string]struct {
		fail func(p []byte) (int, error) // the first ten writes
		want error                       // that is reported
	}{
		"nothing written":           {func([]byte) (int, error) { return 0, broken }, broken},
		"a part written":            {func(p []byte) (int, error) { return min(7, len(p)), broken }, broken},
		"a part written, no error":  {func(p []byte) (int, error) { return min(7, len(p)), nil }, io.ErrShortWrite},
		"nothing written, no error": {func([]byte) (int, error) { return 0, nil }, io.ErrShortWrite},
		"impossible count":          {func([]byte) (int, error) { return -1, broken }, broken},
		"everything written":        {func(p []byte) (int, error) { return len(p), broken }, broken},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const failures = 10
				var written bytes.Buffer
				var reports []error
				writes := 0
				w := writerFunc(func(p []byte) (int, error) {
					if writes++; writes > failures {
						return written.Write(p)
					}
					n, err := test.fail(p)
					written.Write(p[:max(n, 0)])
					return n, err
				})
				l := New(w, func(err error) { reports = append(reports, err) })
				began := time.Now()
				for i := range 2 * failures {
					l.Add(numbered(i))
					synctest.Wait()
				}
				closeLog(t, l)

				if diff := cmp.Diff(count(2*failures), verbs(t, written.Bytes())); diff != "" {
					t.Errorf("lines (-want +got):\n%s", diff)
				}
				if len(reports) != 1 || !errors.Is(reports[0], test.want) {
					t.Errorf("reports are %v, want one of %v", reports, test.want)
				}
				if l.Lost() != 0 {
					t.Errorf("Lost is %d", l.Lost())
				}
				// Lines that arrive do not have it try more often.
				if took := time.Since(began); took != time.Duration(l.Failures())*retryAfter {
					t.Errorf("%d failures took %s", l.Failures(), took)
				}
			})
		})
	}
}

func TestFailuresWithoutReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(writerFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe }), nil)
		l.Add(call())
		time.Sleep(10*retryAfter + retryAfter/2)
		if got := l.Failures(); got != 11 {
			t.Errorf("Failures is %d, want 11", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = l.Close(ctx)
	})
}

func TestClose(t *testing.T) {
	tests := map[string]struct {
		write     func(block <-chan struct{}, p []byte) (int, error)
		wantErr   error
		wantAfter time.Duration // that Close takes
		wantLost  uint64        // when the goroutine has ended
	}{
		"writes everything": {
			write: func(_ <-chan struct{}, p []byte) (int, error) { return len(p), nil },
		},
		"waits for a slow writer": {
			write:     func(_ <-chan struct{}, p []byte) (int, error) { time.Sleep(time.Second); return len(p), nil },
			wantAfter: 2 * time.Second, // the first line, and then the others
		},
		"does not wait for a writer that blocks": {
			write:     func(block <-chan struct{}, p []byte) (int, error) { <-block; return len(p), nil },
			wantErr:   context.DeadlineExceeded,
			wantAfter: 5 * time.Second,
			wantLost:  2, // the write that ends after all has the first
		},
		"does not wait for a writer that fails": {
			write:     func(<-chan struct{}, []byte) (int, error) { return 0, io.ErrClosedPipe },
			wantErr:   context.DeadlineExceeded,
			wantAfter: 5 * time.Second,
			wantLost:  3,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				block := make(chan struct{})
				l := New(writerFunc(func(p []byte) (int, error) { return test.write(block, p) }), nil)
				l.Add(numbered(0))
				synctest.Wait()
				l.Add(numbered(1))
				l.Add(numbered(2))

				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if err := l.Close(ctx); !errors.Is(err, test.wantErr) {
					t.Errorf("Close: %v, want %v", err, test.wantErr)
				}
				if took := time.Since(began); took != test.wantAfter {
					t.Errorf("Close took %s, want %s", took, test.wantAfter)
				}
				close(block)
				<-l.done
				if l.Lost() != test.wantLost {
					t.Errorf("Lost is %d, want %d", l.Lost(), test.wantLost)
				}

				if l.Add(call()) || !l.Full() || l.Lost() != test.wantLost+1 {
					t.Error("a closed log takes events")
				}
				closeLog(t, l)
			})
		})
	}
}

func TestCloseWritesWhatWasJustAdded(t *testing.T) {
	for range 50 { // the goroutine may see the event or the end first
		var written bytes.Buffer
		l := New(&written, nil)
		l.Add(numbered(0))
		closeLog(t, l)
		if diff := cmp.Diff(count(1), verbs(t, written.Bytes())); diff != "" {
			t.Fatalf("lines (-want +got):\n%s", diff)
		}
	}
}

func TestAddDoesNotAllocate(t *testing.T) {
	open, closed := New(io.Discard, nil), New(io.Discard, nil)
	defer closeLog(t, open)
	closeLog(t, closed)
	caller := call().Identity
	caller.Groups = strings.Split(strings.Repeat("corp:größe,", 40), ",")
	tests := map[string]*Event{
		"call":      call(),
		"anonymous": {Verb: "authenticate", Denied: "no_token", Rule: -1},
		"hostile":   {Identity: caller, Verb: "a\n\xff\"", UserAgent: strings.Repeat("\u2028", 300)},
		"URI":       {Identity: caller, Verb: "resources/read", Kind: "resources", Name: "https://me:secret@host/path?query#fragment", Session: "1"},
	}
	for name, e := range tests {
		t.Run(name, func(t *testing.T) {
			if allocs := testing.AllocsPerRun(1000, func() {
				event := *e             // on the stack, as the adapter has it
				for !open.Add(&event) { // an event that is lost proves nothing
					runtime.Gosched()
				}
			}); allocs != 0 {
				t.Errorf("Add allocates %v objects", allocs)
			}
			if allocs := testing.AllocsPerRun(1000, func() { closed.Add(e) }); allocs != 0 {
				t.Errorf("Add of a closed log allocates %v objects", allocs)
			}
		})
	}
}

func BenchmarkAdd(b *testing.B) {
	l := New(io.Discard, nil)
	add := func(e *Event) {
		for !l.Add(e) {
			runtime.Gosched() // the goroutine of the log needs a processor, too
		}
	}
	b.Run("One", func(b *testing.B) {
		e := call()
		b.ReportAllocs()
		for b.Loop() {
			add(e)
		}
	})
	b.Run("Parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			e := call()
			for pb.Next() {
				add(e)
			}
		})
	})
	_ = l.Close(b.Context())
	b.Run("Closed", func(b *testing.B) {
		e := call()
		b.ReportAllocs()
		for b.Loop() {
			l.Add(e)
		}
	})
}

func BenchmarkLine(b *testing.B) {
	benchmarks := map[string]*Event{"Call": call(), "Largest": largest()}
	for name, e := range benchmarks {
		b.Run(name, func(b *testing.B) {
			buffer := make([]byte, 0, maxLine)
			b.ReportAllocs()
			for b.Loop() {
				buffer = appendEvent(buffer[:0], [16]byte{}, e)
			}
			b.SetBytes(int64(len(buffer)))
		})
	}
}
