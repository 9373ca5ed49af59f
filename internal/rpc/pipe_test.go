package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newPipe is what a server's standard output is read from.
func newPipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(read.Close(), write.Close()) })
	return read, write
}

// A pipe is read without a buffer of its own while it is empty. What arrives in odd pieces
// is the same as elsewhere.
func TestFrameReaderOnAPipe(t *testing.T) {
	long := `{"x":"` + strings.Repeat("y", 3*largeBuffer) + `"}`
	for name, pieces := range map[string][]string{
		"a line at a time": {"{1}\n", "{2}\n"},
		"several at once":  {"{1}\n{2}\n{3}\n"},
		"a line in pieces": {"{", "1", "}\n{2", "}\n"},
		"larger than a buffer, and one more behind it": {long + "\n{1}\n"},
		"large in pieces": {long[:100], long[100:5000], long[5000:] + "\n"},
		"no end":          {"{1}\n", "{2}"},
	} {
		t.Run(name, func(t *testing.T) {
			read, write := newPipe(t)
			go func() {
				for _, piece := range pieces {
					_, _ = write.WriteString(piece)
				}
				_ = write.Close()
			}()
			got, junk, err := readFrames(read, Newline, 1<<20)
			want := strings.Split(strings.TrimSuffix(strings.Join(pieces, ""), "\n"), "\n")
			if diff := cmp.Diff(want, got); diff != "" || len(junk) > 0 || !errors.Is(err, io.EOF) {
				t.Errorf("%v, junk %q, messages (-want +got):\n%s", err, junk, diff)
			}
		})
	}
}

// Readers share buffers, and what one has returned stays as it is until it reads on.
func TestFrameReadersDoNotMix(t *testing.T) {
	const readers = 8
	for round := range 50 {
		var frames [readers]*FrameReader
		var got [readers][]byte
		for i := range readers {
			read, write := newPipe(t)
			frames[i] = NewFrameReader(read, Newline, 1<<20, nil)
			if _, err := fmt.Fprintf(write, "{%d:%d}\n", round, i); err != nil {
				t.Fatal(err)
			}
		}
		for i, reader := range frames {
			message, err := reader.Next()
			if err != nil {
				t.Fatal(err)
			}
			got[i] = message
		}
		for i, message := range got {
			if want := fmt.Sprintf("{%d:%d}", round, i); string(message) != want {
				t.Fatalf("reader %d has %q, want %q", i, message, want)
			}
		}
	}
}

// A large message can be kept without a copy; what follows is not lost and does not change
// it. One that fills little of its buffer cannot.
func TestRelease(t *testing.T) {
	large := []byte(`{"x":"` + strings.Repeat("y", 100<<10) + `"}`)
	for name, test := range map[string]struct {
		output string
		want   bool
	}{
		"large":                   {string(large) + "\n", true},
		"small":                   {"{1}\n", false},
		"another one behind it":   {string(large) + "\n{2}\n", true},
		"small in a large buffer": {strings.Repeat("z", 70<<10) + "\n{1}\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			source := io.MultiReader(strings.NewReader(test.output), strings.NewReader(strings.Repeat("{2}\n", 100<<10)))
			reader := NewFrameReader(source, Newline, 1<<20, nil)
			message, err := reader.Next()
			if err != nil {
				t.Fatal(err)
			}
			before := bytes.Clone(message)
			if got := reader.Release(); got != test.want {
				t.Fatalf("released is %v, want %v", got, test.want)
			}
			if !test.want {
				return
			}
			for range 1000 {
				if next, err := reader.Next(); err != nil || string(next) != "{2}" {
					t.Fatalf("then comes %q, %v", next, err)
				}
			}
			if !bytes.Equal(before, message) {
				t.Error("the message has changed")
			}
		})
	}
}

// Messages of a size that is usual for results are read without a new buffer each.
func TestPipeReaderAllocatesLittle(t *testing.T) {
	// The race detector has a pool lose a quarter of what is put there.
	const times, most = 400, largeBuffer * 3 / 8
	for _, size := range []int{200, 12 << 10, 40 << 10} {
		read, write := newPipe(t)
		reader := NewFrameReader(read, Newline, 1<<20, nil)
		line := []byte(`{"x":"` + strings.Repeat("y", size) + "\"}\n")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			if _, err := write.Write(line); err != nil {
				t.Fatal(err)
			}
			if message, err := reader.Next(); err != nil || len(message) != len(line)-1 {
				t.Fatalf("%d bytes, %v", len(message), err)
			}
		}
		runtime.ReadMemStats(&after)
		if allocated := (after.TotalAlloc - before.TotalAlloc) / times; allocated > most {
			t.Errorf("%d bytes are allocated for a message of %d", allocated, size)
		}
	}
}
