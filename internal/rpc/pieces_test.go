package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// messageOf is a message of so many bytes that no other number has.
func messageOf(size, number int) []byte {
	message := fmt.Appendf(nil, "{%d:", number)
	for len(message) < size-1 {
		message = append(message, byte('a'+(len(message)+number)%26))
	}
	return append(message, '}')
}

// Messages of about as many bytes as some buffers have arrive whole, and in their order,
// with junk between them and in whatever pieces.
func TestFrameReaderAroundBuffers(t *testing.T) {
	for _, framing := range []Framing{Newline, ContentLength} {
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(seed, uint64(framing)))
			var want [][]byte
			var output []byte
			for number := range 12 {
				if random.IntN(4) == 0 {
					output = append(append(output, bytes.Repeat([]byte("z"), random.IntN(2)*largeBuffer+random.IntN(4))...), '\n')
				}
				message := messageOf(random.IntN(4)*largeBuffer+random.IntN(8), number)
				want = append(want, message)
				output = AppendFrame(output, message, framing)
			}
			var source io.Reader = bytes.NewReader(output)
			if seed%2 == 1 {
				source = iotest.HalfReader(source)
			}
			reader := NewFrameReader(source, framing, 4*largeBuffer, nil)
			for number, message := range want {
				got, err := reader.Next()
				if err != nil || !bytes.Equal(got, message) {
					t.Fatalf("seed %d: message %d has %d bytes, want %d, or is another one; %v", seed, number, len(got), len(message), err)
				}
			}
			if _, err := reader.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("seed %d: ended with %v", seed, err)
			}
		}
	}
}

// The limit is one of the message, however many buffers it takes.
func TestFrameReaderLimitsManyBuffers(t *testing.T) {
	const limit = 2*largeBuffer + 10
	for size, want := range map[int]error{limit: io.EOF, limit + 1: ErrFrameTooLong, 10 * limit: ErrFrameTooLong} {
		messages, _, err := readFrames(bytes.NewReader(append(messageOf(size, 1), '\n')), Newline, limit)
		if !errors.Is(err, want) || len(messages) > 0 != errors.Is(want, io.EOF) {
			t.Errorf("%d bytes: %d messages, %v, want %v", size, len(messages), err, want)
		}
	}
}

// The reader reserves memory before it takes it, all that it holds and no more.
func TestFrameReaderReserves(t *testing.T) {
	const size = 3*largeBuffer + 100
	for name, released := range map[string]bool{"released": true, "kept until the next": false} {
		for kind, first := range map[string]string{"message": "{", "junk": "x"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				var reader *FrameReader
				var reserved []int
				line := first + strings.Repeat("y", size-1)
				reader = NewFrameReader(strings.NewReader(line+"\n{1}\n{2}\n"), Newline, 1<<20, nil)
				reader.Bound(func(bytes int) error {
					if held := (len(reader.pieces) + 1) * largeBuffer; bytes > size && bytes != held+largeBuffer {
						t.Errorf("holds %d bytes, and wants %d", held, bytes)
					}
					reserved = append(reserved, bytes)
					return nil
				})
				want := []int{2 * largeBuffer, 3 * largeBuffer, 4 * largeBuffer}
				next := "{2}"
				if message, err := reader.Next(); err != nil || kind == "message" && len(message) != size {
					t.Fatalf("%d bytes, %v", len(message), err)
				}
				if kind == "junk" {
					want = append(want, 0)
				} else {
					next = "{1}"
					if diff := cmp.Diff(want, reserved); diff != "" {
						t.Errorf("reserved while the message is there (-want +got):\n%s", diff)
					}
					want = append(want, 0)
				}
				if released && reader.Release() != (kind == "message") {
					t.Error("a message has the memory of another")
				}
				if kind == "message" && len(reserved) != 3 {
					t.Error("the room of a message is given back before the session can take it over")
				}
				if message, err := reader.Next(); err != nil || string(message) != next {
					t.Fatalf("then comes %q, %v", message, err)
				}
				if diff := cmp.Diff(want, reserved); diff != "" {
					t.Errorf("reserved (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// A reader that gets no memory ends, and has not taken it.
func TestFrameReaderIsRefused(t *testing.T) {
	refused := errors.New("no room")
	reader := NewFrameReader(&repeating{line: []byte("x")}, Newline, 1<<20, nil)
	reader.Bound(func(bytes int) error {
		if bytes > 2*largeBuffer {
			return refused
		}
		return nil
	})
	if _, err := reader.Next(); !errors.Is(err, refused) {
		t.Errorf("ended with %v", err)
	}
	if len(reader.pieces) != 1 {
		t.Errorf("has %d full buffers", len(reader.pieces))
	}
}

// poison overwrites the buffers that are in the pool.
func poison() {
	var taken []*[largeBuffer]byte
	for range 16 {
		buffer := buffers.Get().(*[largeBuffer]byte)
		for i := range buffer {
			buffer[i] = 0xee
		}
		taken = append(taken, buffer)
	}
	for _, buffer := range taken {
		buffers.Put(buffer)
	}
}

// No part of a message is in the pool while its reader, or the owner of it, reads it.
func TestPoolHasNoMessages(t *testing.T) {
	sizes := []int{10, 3 * largeBuffer, 20, 5*largeBuffer - 1, largeBuffer, largeBuffer - 1, 30, 2 * largeBuffer}
	var all sync.WaitGroup
	for reader := range 4 {
		all.Go(func() {
			read, write := newPipe(t)
			go func() {
				for number, size := range sizes {
					_, _ = write.Write(append(messageOf(size, number+reader), '\n'))
				}
				_ = write.Close()
			}()
			frames := NewFrameReader(read, Newline, 1<<20, nil)
			var owned, want [][]byte
			for number, size := range sizes {
				got, err := frames.Next()
				if err != nil {
					t.Errorf("Next: %v", err)
					return
				}
				message := messageOf(size, number+reader)
				poison()
				if !bytes.Equal(got, message) {
					t.Errorf("message %d of reader %d was overwritten", number, reader)
				}
				if frames.Release() {
					owned, want = append(owned, got), append(want, message)
				}
			}
			poison()
			if len(owned) < 3 || !slices.EqualFunc(owned, want, bytes.Equal) {
				t.Errorf("one of %d messages was overwritten after its reader gave it away", len(owned))
			}
		})
	}
	all.Wait()
}

func BenchmarkFrameReaderLarge(b *testing.B) {
	reader := NewFrameReader(&repeating{line: append(messageOf(1<<20, 1), '\n')}, Newline, 2<<20, nil)
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := reader.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
