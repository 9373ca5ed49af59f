package rpc

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func readFrames(source io.Reader, framing Framing, limit int) (messages, junk []string, err error) {
	reader := NewFrameReader(source, framing, limit, func(line []byte) { junk = append(junk, string(line)) })
	for {
		message, err := reader.Next()
		if err != nil {
			return messages, junk, err
		}
		messages = append(messages, string(message))
	}
}

func TestFrameReader(t *testing.T) {
	for name, test := range map[string]struct {
		framing        Framing
		output         string
		messages, junk []string
		err            error
	}{
		"lines":                      {Newline, "{1}\n{2}\n", []string{"{1}", "{2}"}, nil, io.EOF},
		"S-15 other line endings":    {Newline, "{1}\r\n\n\r\n{2}\r\n", []string{"{1}", "{2}"}, nil, io.EOF},
		"S-03 junk lines":            {Newline, "Server ready\n{1}\n> prompt {2}\n", []string{"{1}"}, []string{"Server ready", "> prompt {2}"}, io.EOF},
		"S-02 headers are junk":      {Newline, "Content-Length: 3\r\n\r\n{1}\n", []string{"{1}"}, []string{"Content-Length: 3"}, io.EOF},
		"byte order mark":            {Newline, "\ufeff{1}\n", []string{"{1}"}, nil, io.EOF},
		"indented":                   {Newline, "  {1}\n", []string{"  {1}"}, nil, io.EOF},
		"batch":                      {Newline, "[{1}]\n", []string{"[{1}]"}, nil, io.EOF},
		"last line without an end":   {Newline, "{1}\n{2}", []string{"{1}", "{2}"}, nil, io.EOF},
		"nothing":                    {Newline, "", nil, nil, io.EOF},
		"as long as may be":          {Newline, strings.Repeat("{", 64) + "\r\n", []string{strings.Repeat("{", 64)}, nil, io.EOF},
		"too long":                   {Newline, "{1}\n" + strings.Repeat("{", 80) + "\n{2}\n", []string{"{1}"}, nil, ErrFrameTooLong},
		"headers":                    {ContentLength, "Content-Length: 3\r\n\r\n{1}Content-Length: 4\r\nContent-Type: x\r\n\r\n{22}", []string{"{1}", "{22}"}, nil, io.EOF},
		"headers in another case":    {ContentLength, "content-length:3\n\n{1}", []string{"{1}"}, nil, io.EOF},
		"message of several lines":   {ContentLength, "Content-Length: 5\r\n\r\n{\n1\n}", []string{"{\n1\n}"}, nil, io.EOF},
		"junk between headers":       {ContentLength, "hello\n\nContent-Length: 3\r\n\r\n{1}bye\n", []string{"{1}"}, []string{"hello", "bye"}, io.EOF},
		"length is not a number":     {ContentLength, "Content-Length: x\r\n\r\nContent-Length: 3\r\n\r\n{1}", []string{"{1}"}, []string{"Content-Length: x"}, io.EOF},
		"length is negative":         {ContentLength, "Content-Length: -3\r\n\r\n", nil, []string{"Content-Length: -3"}, io.EOF},
		"announced message too long": {ContentLength, "Content-Length: 65\r\n\r\n", nil, nil, ErrFrameTooLong},
		"cut off":                    {ContentLength, "Content-Length: 5\r\n\r\n{1}", nil, nil, io.ErrUnexpectedEOF},
		"body that is not a message": {ContentLength, "Content-Length: 2\r\n\r\nhi", nil, []string{"hi"}, io.EOF},
	} {
		// R42: however the output arrives, it reads the same.
		for how, source := range map[string]io.Reader{
			"at once":     strings.NewReader(test.output),
			"bytewise":    iotest.OneByteReader(strings.NewReader(test.output)),
			"with an end": iotest.DataErrReader(strings.NewReader(test.output)),
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				messages, junk, err := readFrames(source, test.framing, 64)
				if diff := cmp.Diff(test.messages, messages); diff != "" {
					t.Errorf("messages (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.junk, junk); diff != "" {
					t.Errorf("junk (-want +got):\n%s", diff)
				}
				if !errors.Is(err, test.err) {
					t.Errorf("ended with %v, want %v", err, test.err)
				}
			})
		}
	}
}

// R39: no line is too long for the reader but by its limit, and R40: one large
// message does not keep its memory.
func TestFrameReaderLargeMessages(t *testing.T) {
	large := "{" + strings.Repeat("x", 8<<20) + "}"
	reader := NewFrameReader(strings.NewReader(large+"\n{1}\n"+large+"\n"), Newline, 16<<20, nil)
	for _, want := range []string{large, "{1}", large} {
		got, err := reader.Next()
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		if string(got) != want {
			t.Fatalf("got a message of %d bytes, want %d", len(got), len(want))
		}
	}
	if _, err := reader.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("Next: got %v, want io.EOF", err)
	}
	if kept := cap(reader.buffer) + cap(reader.pieces); kept > largeBuffer {
		t.Errorf("keeps %d bytes after the last message, want at most %d", kept, largeBuffer)
	}
}

func TestFrameReaderDoesNotAllocate(t *testing.T) {
	reader := NewFrameReader(&repeating{line: append(bytes.Clone(smallCall), '\n')}, Newline, 1<<20, nil)
	if _, err := reader.Next(); err != nil {
		t.Fatal(err)
	}
	if allocs := testing.AllocsPerRun(1000, func() {
		if _, err := reader.Next(); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("Next allocates %v times, want 0", allocs)
	}
}

// repeating is an endless stream of one line.
type repeating struct {
	line []byte
	rest []byte
}

func (r *repeating) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		r.rest = r.line
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// FuzzFrames writes messages with junk between them and reads them back.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(`{"a":1}`), []byte("banner"), false)
	f.Add([]byte(`{}`), []byte(""), true)
	f.Add([]byte("[\"\u00e9\"]"), []byte("Content-Length: 7"), true)
	f.Fuzz(func(t *testing.T, message, junk []byte, header bool) {
		framing := Newline
		if header {
			framing = ContentLength
		}
		if bytes.ContainsAny(message, "\r\n") || !isCandidate(message) {
			message = []byte("{}")
		}
		junk = bytes.TrimLeft(junk, " \t")
		noise := !bytes.ContainsAny(junk, "\n:") && !isCandidate(junk)
		var output []byte
		if noise {
			output = append(append(output, junk...), '\n')
		}
		output = AppendFrame(output, message, framing)
		if noise {
			output = append(append(output, junk...), '\n')
		}
		output = AppendFrame(output, message, framing)

		messages, _, err := readFrames(iotest.HalfReader(bytes.NewReader(output)), framing, 1<<20)
		if !errors.Is(err, io.EOF) {
			t.Fatalf("%q: ended with %v", output, err)
		}
		if diff := cmp.Diff([]string{string(message), string(message)}, messages); diff != "" {
			t.Fatalf("%q (-want +got):\n%s", output, diff)
		}
	})
}

// FuzzFrameReader reads arbitrary output: it must end, and stay within its limit.
func FuzzFrameReader(f *testing.F) {
	f.Add([]byte("{1}\nx\n"), false)
	f.Add([]byte("Content-Length: 3\r\n\r\n{1}"), true)
	f.Fuzz(func(t *testing.T, output []byte, header bool) {
		framing := Newline
		if header {
			framing = ContentLength
		}
		messages, _, err := readFrames(bytes.NewReader(output), framing, 128)
		if err == nil {
			t.Fatal("ended without an error")
		}
		for _, message := range messages {
			if len(message) > 128 {
				t.Fatalf("a message of %d bytes, want at most 128", len(message))
			}
		}
	})
}
